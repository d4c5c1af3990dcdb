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

// Browsers recognizes browsers by a random cookie, which reveals nothing about anybody. It is for one owner,
// as Cookies are.
type Browsers struct {
	Cookies page.Cookies
	Name    string        // of the cookie
	Path    string        // below the base URL, that browsers send it to
	Life    time.Duration // from the last time that it was set
}

// Of returns the id in the browser's cookie; empty if it sent none in our form. If a neighbouring host has
// planted a second one, the first counts: a wrong one costs its browser a wait, and Began distinguishes it
// from the browser's own.
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

// Know sets a browser's cookie with its id, or extends the life of the existing one, and returns the id: a
// new one if it is empty.
func (b Browsers) Know(w http.ResponseWriter, id string) string {
	if id == "" {
		id = rand.Text()
	}
	http.SetCookie(w, b.Cookies.New(b.Name, id, b.Path, int(b.Life/time.Second)))
	return id
}

// Began reports whether the browser of a request is the one whose hash for an owner is given, and which began
// a flow. One that sends another browser's cookie along with its own is not: somebody else has set that.
func (b Browsers) Began(r *http.Request, hash, owner string) bool {
	ids := b.all(r)
	return len(ids) > 0 && !slices.ContainsFunc(ids, func(id string) bool {
		return BrowserHash(id, owner) != hash
	})
}

// BrowserHash identifies the browser of an id in places that others may read. It differs for each owner, so
// that nobody can find out that two of them had the same browser. It is empty for no id.
func BrowserHash(id, owner string) string {
	if id == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(id + "." + owner))
	return hex.EncodeToString(sum[:16]) // 128 bits keep the browsers of one owner apart
}
