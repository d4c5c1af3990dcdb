package input

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"verifyd/edge/account/branding"
	"verifyd/edge/origin"
)

const (
	// returnURLBytes bounds a return URL, as a callback URL is bounded.
	returnURLBytes = 2048
	// hostBytes is the longest name that the DNS has (RFC 1035 §2.3.4).
	hostBytes = 253
	// MaxOrigins bounds the origins of an account to as many as a form and a record in the audit log can
	// show.
	MaxOrigins = 10
)

// Origins reads sites as people write them, and returns their origins, each once. The error is an *Error.
func Origins(sites []string) ([]string, error) {
	var origins []string
	for _, site := range sites {
		if err := ReturnURL("return_origins", site); err != nil {
			return nil, err
		}
		allowed := origin.Of(site)
		if rest := strings.TrimSuffix(strings.ToLower(site), "/"); rest != allowed && rest != allowed+":443" {
			return nil, Wrong("return_origins", "%.100q is more than a site; leave out what follows the "+
				"host, for example %s", site, allowed)
		}
		if !slices.Contains(origins, allowed) {
			origins = append(origins, allowed)
		}
	}
	if len(origins) > MaxOrigins {
		return nil, Wrong("return_origins", "these are %d sites; at most %d are allowed", len(origins),
			MaxOrigins)
	}
	return origins, nil
}

// Colour checks a colour, #rrggbb or empty, and returns it in lower case. The error is an *Error.
func Colour(colour string) (string, error) {
	if colour != "" && !branding.IsColour(colour) {
		return "", Wrong("colour", "%q is not a colour; write red, green and blue in hexadecimal, for "+
			"example #1f5fd0", colour)
	}
	return strings.ToLower(colour), nil
}

// ReturnURL checks an address or a site that users are sent back to. It requires https, so that nobody in
// between can change where users arrive, and an address that shows where it leads. The error is an *Error.
func ReturnURL(field, s string) error {
	if s == "" && field == "return_url" { // nowhere
		return nil
	}
	u, err := url.Parse(s)
	wrong := ""
	switch {
	case len(s) > returnURLBytes:
		wrong = fmt.Sprintf("has %d bytes; at most %d are allowed", len(s), returnURLBytes)
	case err != nil || !Plain(s, returnURLBytes) || strings.ContainsAny(s, " \\"):
		wrong = "is not a URL"
	case u.Scheme != "https":
		wrong = "does not begin with https://"
	case u.Hostname() == "" || u.Opaque != "":
		wrong = "names no host"
	case len(u.Hostname()) > hostBytes:
		wrong = fmt.Sprintf("has a host of %d bytes; at most %d are allowed", len(u.Hostname()), hostBytes)
	case strings.Contains(u.Host, "*"):
		wrong = "has a * in its host, and each site is allowed by its exact name"
	case u.User != nil:
		wrong = "has a user name or password in it, which every user would see"
	}
	if wrong == "" {
		return nil
	}
	example := "the page that users come back to, for example https://example.com/verified"
	if field == "return_origins" {
		example = "a site, for example https://example.com"
	}
	return Wrong(field, "%.100q %s; give %s", s, wrong, example)
}
