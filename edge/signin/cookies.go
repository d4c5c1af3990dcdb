package signin

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"verifyd/natsconf/seal"
)

const (
	flowCookie = "verifyd_flow_"
	// securePrefix makes browsers refuse the cookie unless it came over https with Secure (RFC 6265bis §4.1.3.1), so that
	// nobody on a plain connection can plant one.
	securePrefix = "__Secure-"
	// flowsMost is how many attempts one browser may have open: enough for a person with many tabs, and 4 KB of header at most.
	flowsMost = 8
	// lateReturn is how much longer than the session a cookie lives, so that who comes back too late is told that the link has
	// expired rather than that cookies are missing. An expired session completes never, so the cookie opens no door by then.
	lateReturn = 10 * time.Minute
)

// cookies keeps flows in the browser: one cookie per attempt, so that several tabs do not overwrite each other.
//
// A cookie stays after its attempt is spent: it is how a reload of the provider's return, or a press on Back, still finds its
// session and lands on the clean page. Whether an attempt is spent is said by the store, which no browser can turn back.
type cookies struct {
	box    *seal.Box
	prefix string // of the cookies' names
	path   string
	secure bool
	now    func() time.Time
}

func newCookies(key seal.Key, path string, secure bool, now func() time.Time) cookies {
	c := cookies{box: key.Box(flowUse), prefix: flowCookie, path: path, secure: secure, now: now}
	if secure {
		c.prefix = securePrefix + flowCookie
	}
	return c
}

// keep sets the cookie of a flow whose session expires at the given instant.
func (c cookies) keep(w http.ResponseWriter, f flow, expires time.Time) error {
	value, err := sealFlow(c.box, f)
	if err != nil {
		return err
	}
	seconds := int(expires.Add(lateReturn).Sub(c.now()) / time.Second)
	http.SetCookie(w, c.cookie(tagOf(f.Attempt.State), value, max(seconds, 1)))
	return nil
}

func (c cookies) drop(w http.ResponseWriter, tag string) { http.SetCookie(w, c.cookie(tag, "", -1)) }

func (c cookies) cookie(tag, value string, maxAge int) *http.Cookie {
	return &http.Cookie{ //nolint:gosec // Secure follows the base URL's scheme
		Name: c.prefix + tag, Value: value, Path: c.path, MaxAge: maxAge,
		Secure: c.secure, HttpOnly: true,
		SameSite: http.SameSiteLaxMode, // Strict would not come along on the way back from the provider
	}
}

// find gives the flow that a return with this state belongs to. A cookie of the state's name that does not open is removed.
func (c cookies) find(w http.ResponseWriter, r *http.Request, state string) (flow, bool) {
	tag := tagOf(state)
	found := r.CookiesNamed(c.prefix + tag) // more than one where a neighbouring host has set its own
	for _, cookie := range found {
		f, err := openFlow(c.box, tag, cookie.Value)
		if err == nil && f.Attempt.StateIs(state) {
			return f, true
		}
	}
	if len(found) > 0 {
		c.drop(w, tag)
	}
	return flow{}, false
}

// makeRoom removes what does not open, and the oldest flows beyond those that leave room for one more.
func (c cookies) makeRoom(w http.ResponseWriter, r *http.Request) {
	type held struct {
		tag    string
		issued time.Time
	}
	var flows []held
	for _, cookie := range r.Cookies() {
		tag, ours := strings.CutPrefix(cookie.Name, c.prefix)
		if !ours {
			continue
		}
		f, err := openFlow(c.box, tag, cookie.Value)
		if err != nil {
			c.drop(w, tag)
			continue
		}
		flows = append(flows, held{tag, f.IssuedAt})
	}
	slices.SortFunc(flows, func(a, b held) int { return b.issued.Compare(a.issued) })
	for _, old := range flows[min(len(flows), flowsMost-1):] {
		c.drop(w, old.tag)
	}
}
