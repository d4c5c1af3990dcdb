package web

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// OnlyOwnNames answers only requests that name a server by a name of its own: an IP address, localhost, or
// one of names, whatever the port. Anything else gets refuse. A request without a Host (HTTP/1.0) passes: no
// browser sends one.
//
// A server on a private address has no other protection against DNS rebinding: a web page from anywhere can
// have its own name lead to 127.0.0.1, and the server there is then the page's own origin for the browser, to
// be read and changed. The name that the browser asked for is in the request's Host. A name is safe if nobody
// else can make it lead here.
func OnlyOwnNames(names []string, refuse, next http.Handler) http.Handler {
	own := []string{"", "localhost"}
	for _, name := range names {
		own = append(own, plain(name))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := plain(r.Host)
		if _, err := netip.ParseAddr(name); err == nil || slices.Contains(own, name) {
			next.ServeHTTP(w, r)
			return
		}
		refuse.ServeHTTP(w, r)
	})
}

// plain returns the name of a Host alone, as names are compared.
func plain(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
