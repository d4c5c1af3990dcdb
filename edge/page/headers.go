package page

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Guard sets the headers that every answer of a page's routes carries, redirects included, in addition to
// those of package web.
func Guard(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		head := w.Header()
		head.Set("Cache-Control", "no-store")
		head.Set("Content-Security-Policy", Policy("'none'"))
		head.Set("Cross-Origin-Opener-Policy", "same-origin")
		head.Set("Cross-Origin-Resource-Policy", "same-origin")
		head.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
		head.Set("Referrer-Policy", "no-referrer") // addresses of pages hold session tokens
		head.Set("X-Content-Type-Options", "nosniff")
		head.Set("X-Robots-Tag", "noindex")
		next(w, r)
	})
}

// Policy is the content security policy with the given form-action, and with whatever else a page needs, each
// a whole directive.
func Policy(formAction string, more ...string) string {
	p := "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; frame-ancestors " +
		"'none'; form-action " + formAction
	return strings.Join(append([]string{p}, more...), "; ")
}

// PlainSources returns the sources that form-action needs in addition to https for a network's authorization
// origin. If that is not known yet, and verifyd itself is on plain http, it may be any on this machine: the
// button will find out where.
func PlainSources(origin string, https bool) []string {
	switch u, err := url.Parse(origin); {
	case origin == "" && !https:
		return []string{"http://localhost:*", "http://127.0.0.1:*"}
	case err == nil && u.Scheme == "http":
		return []string{origin}
	}
	return nil
}

// SeeOther sends the browser on. 303 makes it a GET whatever came before, so that a reload there repeats
// nothing (RFC 9110 §15.4.4). It has no body: http.Redirect would repeat the address, and with it a session
// token, in one.
func SeeOther(w http.ResponseWriter, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}

// Fixed answers with bytes that are the same for everybody: a page without forms, or a file. A client that
// has them already gets 304 (RFC 9110 §13.1.2). more is what a page needs from the content security policy in
// addition to style sheets and pictures of its own, each a whole directive.
func Fixed(media, cache string, data []byte, more ...string) http.Handler {
	sum := sha256.Sum256(data)
	tag := `"` + hex.EncodeToString(sum[:])[:hashLen] + `"`
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", cache)
		h.Set("Content-Security-Policy", Policy("'none'", more...))
		h.Set("Content-Type", media)
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("ETag", tag)
		h.Set("Referrer-Policy", "same-origin")
		h.Set("X-Content-Type-Options", "nosniff")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	})
}
