package web

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// ErrBaseURL is returned, wrapped with the fault, for a base URL that cannot be used.
var ErrBaseURL = errors.New(
	"not a base URL; write where users reach the service, as in https://verify.example.com or " +
		"https://example.com/verify")

// ParseBaseURL checks a base URL and returns it without its final slashes, and the path prefix that every
// route is mounted under: empty, or with a slash in front and none at its end. The error is ErrBaseURL.
func ParseBaseURL(raw string) (base, prefix string, err error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return "", "", fmt.Errorf("%w: it cannot be parsed", ErrBaseURL)
	case u.Scheme != "https" && u.Scheme != "http" || u.Opaque != "":
		return "", "", fmt.Errorf("%w: it does not start with https:// or http://", ErrBaseURL)
	case u.Hostname() == "":
		return "", "", fmt.Errorf("%w: it has no host", ErrBaseURL)
	case u.User != nil:
		return "", "", fmt.Errorf("%w: it has a user name or password", ErrBaseURL)
	case u.RawQuery != "" || u.ForceQuery || strings.Contains(raw, "#"):
		return "", "", fmt.Errorf("%w: it has a query or fragment", ErrBaseURL)
	}
	prefix = strings.TrimRight(u.Path, "/")
	if err := checkPrefix(prefix, u.RawPath); err != nil {
		return "", "", err
	}
	return u.Scheme + "://" + u.Host + prefix, prefix, nil
}

// checkPrefix accepts only a prefix that needs no escaping and means nothing to the router: the prefix is
// compared as it is.
func checkPrefix(prefix, rawPath string) error {
	plain := !strings.ContainsFunc(prefix, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') &&
			!strings.ContainsRune("/-._~", r)
	})
	if !plain || rawPath != "" || strings.Contains(prefix, "//") || strings.Contains(prefix+"/", "/./") ||
		strings.Contains(prefix+"/", "/../") {
		return fmt.Errorf("%w: its path may hold letters, digits and - . _ ~ between single slashes",
			ErrBaseURL)
	}
	return nil
}
