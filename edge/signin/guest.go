package signin

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"time"

	"verifyd/sessions"
)

const (
	browserCookie = "verifyd_browser"
	// securePrefix makes browsers refuse the cookie unless it came over https with Secure (RFC 6265bis §4.1.3.1).
	securePrefix = "__Secure-"
	// browserLen is the length of what crypto/rand.Text gives: 130 bits in base32.
	browserLen = 26
	// browserTime is how long the cookie lives from the last look at a page: as long as a session whose page was just opened, and
	// its late return.
	browserTime = sessions.Lifetime + lateReturn
)

// guest is the browser that a request comes from: which language it reads, and how it is known again.
type guest struct {
	words  *tongue
	chosen string // the language's code where it was chosen on a page; empty: the browser's own wish decides
	id     string // of the browser's cookie; empty: it brought none
}

// guest looks at a request. chosen is the language that was chosen on a page before, if one was.
func (h *Handler) guest(r *http.Request, chosen string) guest {
	g := guest{words: h.tongues.find(chosen), chosen: chosen, id: h.browserOf(r)}
	if g.words == nil {
		g.words, g.chosen = h.tongues.match(r), ""
	}
	return g
}

// browserOf gives the id in the browser's cookie. Where a neighbouring host has planted a second one, the first that is of our make
// counts: a wrong one costs its browser a wait, and proves nothing to anybody.
func (h *Handler) browserOf(r *http.Request) string {
	for _, c := range r.CookiesNamed(h.browserName()) {
		if len(c.Value) == browserLen && strings.Trim(c.Value, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == "" {
			return c.Value
		}
	}
	return ""
}

func (h *Handler) browserName() string {
	if h.https {
		return securePrefix + browserCookie
	}
	return browserCookie
}

// know gives a browser its cookie, or the same one for a while longer. It says nothing about anybody: the store holds only a hash of
// it with the session, so that nobody can tell there that two sessions had one browser.
func (h *Handler) know(w http.ResponseWriter, g *guest) {
	if g.id == "" {
		g.id = rand.Text()
	}
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // Secure follows the base URL's scheme
		Name: h.browserName(), Value: g.id, Path: h.prefix + "/", MaxAge: int(browserTime / time.Second),
		Secure: h.https, HttpOnly: true, SameSite: http.SameSiteLaxMode, // Strict would not come along from the chat's link
	})
}

// browser names the guest's browser to the store, for one session; empty where it has no cookie.
func (g guest) browser(id sessions.ID) string {
	if g.id == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(g.id + "." + string(id)))
	return hex.EncodeToString(sum[:16]) // 128 bits keep the browsers of one session apart
}
