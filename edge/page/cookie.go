package page

import "net/http"

const (
	// hostPrefix makes browsers accept the cookie only from this very host, over https, for all of its paths
	// (RFC 6265bis §4.1.3.2): no neighbouring host can set one.
	hostPrefix = "__Host-"
	// securePrefix makes browsers refuse the cookie unless it came over https (RFC 6265bis §4.1.3.1). A
	// neighbouring host can set one.
	securePrefix = "__Secure-"
)

// Cookies defines how the cookies of a service are named and where browsers send them.
//
// Over https they are __Host- cookies. That requires the path "/". A service that has only a path of its host
// keeps its cookies from the neighbours on that host instead, and they are __Secure- cookies.
type Cookies struct {
	HTTPS  bool   // the base URL is https
	Prefix string // path of the base URL, without a slash at its end
}

// Name is the name of a cookie as it is sent.
func (c Cookies) Name(name string) string {
	switch {
	case !c.HTTPS:
		return name
	case c.Prefix != "":
		return securePrefix + name
	default:
		return hostPrefix + name
	}
}

// New returns a cookie for everything below a path of the service. maxAge is in seconds; below 0 the browser
// drops the cookie.
func (c Cookies) New(name, value, path string, maxAge int) *http.Cookie {
	path = c.Prefix + path
	if c.HTTPS && c.Prefix == "" {
		path = "/"
	}
	return &http.Cookie{ //nolint:gosec // Secure follows the base URL's scheme
		Name: c.Name(name), Value: value, Path: path, MaxAge: maxAge, Secure: c.HTTPS, HttpOnly: true,
		// A Strict cookie would not be sent from a chat's link, nor on the way back from an identity network.
		SameSite: http.SameSiteLaxMode,
	}
}
