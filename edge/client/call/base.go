package call

import (
	"errors"
	"net/netip"
	"net/url"
	"strings"
)

// parseBase checks the base URL of a service and returns it without a final slash. secret names what a client
// sends there, so that the error says what would be readable on its way; the URL itself is not shown in
// errors, since it may hold a password.
func parseBase(text, secret string) (string, error) {
	const right = "give the address of the service such as https://verify.example.com"
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "":
		return "", errors.New("the base URL is not an absolute URL; " + right)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return "", errors.New("the base URL holds a user, a query or a fragment; " + right)
	case u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname())):
		return "", errors.New("the base URL is not https, and the " + secret + " would be readable on its " +
			"way; http is for localhost only; " + right)
	}
	return strings.TrimRight(u.String(), "/"), nil
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback() || strings.EqualFold(host, "localhost") ||
		strings.HasSuffix(strings.ToLower(host), ".localhost")
}
