package flow

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"time"

	"verifyd/edge/network"
	"verifyd/edge/page"
	"verifyd/natsconf/secretbox"
)

// Cookies keeps flows in the browser: one cookie per attempt, so that several tabs do not overwrite each
// other.
//
// A cookie stays after its attempt is spent: with it a reload of the provider's return, or a press on Back,
// still finds its session and lands on the clean page. The store, which no browser can turn back, decides
// whether an attempt is spent.
type Cookies struct {
	Config

	prefix string // of the cookies' names, as they are sent
}

// Config is the place of one owner's cookies.
type Config struct {
	Cookies page.Cookies
	Box     *secretbox.Box // of the owner's use
	Name    string         // how the cookies' names begin
	Path    string         // below the base URL, that browsers send them to
	// attempts that one browser may have open: each is 0.7 to 1.4 KB of a request's header
	Max int
	Now func() time.Time //
}

// NewCookies returns the cookies of one owner.
func NewCookies(c Config) Cookies { return Cookies{c, c.Cookies.Name(c.Name)} }

const (
	// stateOwner is what the seal of a state is bound to; the cookies' are bound to tags, which are longer.
	stateOwner = "state"
	// stateFill makes a sealed state as long as any other: 32 bytes; 12 of them are random and 16 are the
	// seal.
	stateFill = 3
)

// NewAttempt makes an attempt whose state shows that it was made here (Made).
func (c Cookies) NewAttempt() network.Attempt {
	a := network.NewAttempt()
	a.State = base64.RawURLEncoding.EncodeToString(c.Box.Seal(make([]byte, stateFill), stateOwner))
	return a
}

// Made reports whether a state comes from NewAttempt, whichever browser began the attempt: nothing else can
// make one. So a return to a browser that did not begin its attempt can spend the attempt, and junk writes
// nothing.
func (c Cookies) Made(state string) bool {
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(state)
	if err == nil {
		_, err = c.Box.Open(sealed, stateOwner)
	}
	return err == nil
}

// Keep sets the cookie of a flow, until the given instant.
func (c Cookies) Keep(w http.ResponseWriter, f Flow, until time.Time) error {
	value, err := sealFlow(c.Box, f)
	if err != nil {
		return err
	}
	seconds := int(until.Sub(c.Now()) / time.Second)
	http.SetCookie(w, c.cookie(tagOf(f.Attempt.State), value, max(seconds, 1)))
	return nil
}

func (c Cookies) drop(w http.ResponseWriter, tag string) { http.SetCookie(w, c.cookie(tag, "", -1)) }

func (c Cookies) cookie(tag, value string, maxAge int) *http.Cookie {
	return c.Cookies.New(c.Name+tag, value, c.Path, maxAge)
}

// Find returns the flow that a return with this state belongs to. A cookie of the state's name that does not
// open is removed.
func (c Cookies) Find(w http.ResponseWriter, r *http.Request, state string) (Flow, bool) {
	tag := tagOf(state)
	found := r.CookiesNamed(c.prefix + tag) // more than one if a neighbouring host has set its own
	for _, cookie := range found {
		f, err := openFlow(c.Box, tag, cookie.Value)
		if err == nil && f.Attempt.StateIs(state) {
			return f, true
		}
	}
	if len(found) > 0 {
		c.drop(w, tag)
	}
	return Flow{}, false
}

// MakeRoom removes cookies that do not open, and the oldest flows until there is room for one more.
func (c Cookies) MakeRoom(w http.ResponseWriter, r *http.Request) {
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
		f, err := openFlow(c.Box, tag, cookie.Value)
		if err != nil {
			c.drop(w, tag)
			continue
		}
		flows = append(flows, held{tag, f.IssuedAt})
	}
	slices.SortFunc(flows, func(a, b held) int { return b.issued.Compare(a.issued) })
	for _, old := range flows[min(len(flows), c.Max-1):] {
		c.drop(w, old.tag)
	}
}
