package signin

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// guarded puts the headers that every answer of these routes carries, redirects included.
func (h *Handler) guarded(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		head := w.Header()
		head.Set("Cache-Control", "no-store")
		head.Set("Content-Security-Policy", policy("'none'"))
		head.Set("Cross-Origin-Opener-Policy", "same-origin")
		head.Set("Cross-Origin-Resource-Policy", "same-origin")
		head.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
		head.Set("Referrer-Policy", "no-referrer") // the address holds the session token
		head.Set("X-Content-Type-Options", "nosniff")
		head.Set("X-Robots-Tag", "noindex")
		if h.https {
			// A year; not for subdomains, which are not this service's to decide about.
			head.Set("Strict-Transport-Security", "max-age=31536000")
		}
		next(w, r)
	})
}

// policy is the content security policy with the given form-action.
func policy(formAction string) string {
	return "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action " + formAction
}

// formAction says where the page's forms may lead. Chromium applies it not only to the form's own target but to every redirect
// that follows its POST, so to the provider and to wherever the provider redirects before it draws a page: its own login host,
// an identity provider behind it. Those hosts cannot be known, hence https as a whole; what the form itself posts to is fixed in
// the page, which has no script that could change it. Plain http is for networks on this very machine, named exactly.
func (h *Handler) formAction() string {
	sources := []string{"'self'", "https:"}
	for _, n := range h.networks {
		for _, source := range h.plainSources(n.AuthorizationOrigin()) {
			if !slices.Contains(sources, source) {
				sources = append(sources, source)
			}
		}
	}
	return strings.Join(sources, " ")
}

// plainSources gives what form-action needs beyond https for a network's authorization origin. Where that is not known yet, and
// verifyd itself is on plain http, it may be any on this machine: the button will find out where.
func (h *Handler) plainSources(origin string) []string {
	switch u, err := url.Parse(origin); {
	case origin == "" && !h.https:
		return []string{"http://localhost:*", "http://127.0.0.1:*"}
	case err == nil && u.Scheme == "http":
		return []string{origin}
	}
	return nil
}
