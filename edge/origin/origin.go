// Package origin computes the origin of a URL.
package origin

import (
	"net/url"
	"strings"
)

// Of returns a checked URL's origin as browsers write it: lower case, without the scheme's own port (RFC 6454
// §6.2). What cannot be parsed is returned as it is.
func Of(checked string) string {
	u, err := url.Parse(checked)
	if err != nil {
		return checked
	}
	host := u.Host
	if port := u.Port(); port == "443" && u.Scheme == "https" || port == "80" && u.Scheme == "http" {
		host = strings.TrimSuffix(host, ":"+port)
	}
	return u.Scheme + "://" + strings.ToLower(host)
}
