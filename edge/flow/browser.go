package flow

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"time"

	"verifyd/edge/page"
)

// browserLen is the length of what crypto/rand.Text returns: 130 bits in base32.
const browserLen = 26

// Browsers knows browsers again by a random cookie, which says nothing about anybody. It is for one owner, as
// Cookies are.
type Browsers struct {
	Cookies page.Cookies
	Name    string        // of the cookie
	Path    string        // below the base URL, that browsers send it to
	Life    time.Duration // from the last time that it was set
}

// Of returns the id in the browser's cookie; empty where it brought none that is of our make. Where a
// neighbouring host has planted a second one, the first counts: a wrong one costs its browser a wait, and
// Began distinguishes it from the browser's own.
func (b Browsers) Of(r *http.Request) string {
	if ids := b.all(r); len(ids) > 0 {
		return ids[0]
	}
	return ""
}

func (b Browsers) all(r *http.Request) (ids []string) {
	for _, c := range r.CookiesNamed(b.Cookies.Name(b.Name)) {
		if len(c.Value) == browserLen && strings.Trim(c.Value, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == "" {
			ids = append(ids, c.Value)
		}
	}
	return ids
}

// Know returns a browser a cookie with its id, or the same one for a while longer, and returns the id: a new
// one where it is empty.
func (b Browsers) Know(w http.ResponseWriter, id string) string {
	if id == "" {
		id = rand.Text()
	}
	http.SetCookie(w, b.Cookies.New(b.Name, id, b.Path, int(b.Life/time.Second)))
	return id
}

// Began reports whether the browser of a request is the one whose hash for an owner is given, and which began
// a flow. One that brings another browser's cookie beside its own is not: somebody else has set it.
func (b Browsers) Began(r *http.Request, hash, owner string) bool {
	ids := b.all(r)
	return len(ids) > 0 && !slices.ContainsFunc(ids, func(id string) bool {
		return BrowserHash(id, owner) != hash
	})
}

// BrowserHash names the browser of an id where others may read it, apart for each owner, so that nobody can
// tell that two of them had one browser. It is empty for no id.
func BrowserHash(id, owner string) string {
	if id == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(id + "." + owner))
	return hex.EncodeToString(sum[:16]) // 128 bits keep the browsers of one owner apart
}
