package page

import "net/http"

const (
	// hostPrefix makes browsers take the cookie from this very host alone, over https, for all of its paths
	// (RFC 6265bis §4.1.3.2): no neighbouring host can set one.
	hostPrefix = "__Host-"
	// securePrefix makes browsers refuse the cookie unless it came over https (RFC 6265bis §4.1.3.1). A
	// neighbouring host can set one.
	securePrefix = "__Secure-"
)

// Cookies says how the cookies of a service are named and where browsers send them.
//
// Over https they are __Host- ones. That asks for the path "/"; a service that has only a path of its host
// keeps its cookies from the neighbours on that host instead, and they are __Secure- ones.
type Cookies struct {
	HTTPS  bool   // the base URL is https
	Prefix string // path of the base URL, without a slash at its end
}

// Name is what a cookie is called on the way.
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

// New makes a cookie for what lies below a path of the service. maxAge is in seconds; below 0 the browser
// drops the cookie.
func (c Cookies) New(name, value, path string, maxAge int) *http.Cookie {
	path = c.Prefix + path
	if c.HTTPS && c.Prefix == "" {
		path = "/"
	}
	return &http.Cookie{ //nolint:gosec // Secure follows the base URL's scheme
		Name: c.Name(name), Value: value, Path: path, MaxAge: maxAge, Secure: c.HTTPS, HttpOnly: true,
		// Strict would not come along from a chat's link, nor on the way back from an identity network.
		SameSite: http.SameSiteLaxMode,
	}
}
