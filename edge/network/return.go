package network

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// ErrBadReturn is returned by ParseReturn for a query that no conforming provider sends.
var ErrBadReturn = errors.New("not a provider's return")

// The longest values taken from a provider's return, in bytes. Codes of providers that put their state inside
// reach 5 KiB.
const (
	maxCodeBytes   = 16 << 10
	maxStateBytes  = 256 // ours have 43
	maxIssuerBytes = 2048
	maxErrorBytes  = 128
)

// forgottenByUser begins the error_description of Azure AD B2C for a user who pressed "forgot your
// password?": the page that called it has to send them to another one. The error's code is access_denied.
const forgottenByUser = "AADB2C90118"

// declined are the error codes of a user who said no: access_denied (RFC 6749 §4.1.2.1), and those of Apple
// and LinkedIn.
var declined = []string{"access_denied", "user_cancelled_authorize", "user_cancelled_login"}

// Return is what the provider's redirect brought back (RFC 6749 §4.1.2, RFC 9207 §2). Exactly one of Code and
// Error is set.
type Return struct {
	Code   string
	State  string
	Issuer string // the iss parameter; empty if the provider sent none
	Error  string // an error code such as access_denied

	forgotten bool // the error of a user who has forgotten the password

	openid *assertion // of an OpenID 2.0 provider; then neither Code nor Error is set
}

// String keeps codes and states out of logs and error texts.
func (Return) String() string { return "network.Return(hidden)" }

// GoString keeps them out of %#v as well.
func (Return) GoString() string { return "network.Return(hidden)" }

// ParseReturn reads the query of the redirect URI, whichever protocol the network speaks. It refuses a
// duplicate parameter (RFC 6749 §3.1), a missing state, a code and an error together, neither of them, and
// values that are too long or have characters outside their grammar (RFC 6749 appendix A). Parameters it does
// not know are ignored (§4.1.2). Errors wrap ErrBadReturn and name the parameter, never a value.
func ParseReturn(q url.Values) (Return, error) {
	var r Return
	for _, p := range []struct {
		name     string
		into     *string
		maxBytes int
	}{
		{"code", &r.Code, maxCodeBytes},
		{"state", &r.State, maxStateBytes},
		{"iss", &r.Issuer, maxIssuerBytes},
		{"error", &r.Error, maxErrorBytes},
	} {
		v, err := single(q, p.name, p.maxBytes)
		if err != nil {
			return Return{}, err
		}
		*p.into = v
	}
	r.forgotten = strings.HasPrefix(q.Get("error_description"), forgottenByUser)
	var err error
	if r.openid, err = parseAssertion(q); err != nil {
		return Return{}, err
	}
	switch {
	case r.State == "":
		return Return{}, fmt.Errorf("%w: no state", ErrBadReturn)
	case r.Code != "" && r.Error != "":
		return Return{}, fmt.Errorf("%w: both code and error", ErrBadReturn)
	case r.openid != nil && r.Code+r.Error != "":
		return Return{}, fmt.Errorf("%w: both OAuth 2 and OpenID 2.0", ErrBadReturn)
	case r.openid != nil:
		return r, nil
	case r.Code == "" && r.Error == "":
		return Return{}, fmt.Errorf("%w: neither code nor error", ErrBadReturn)
	}
	return r, nil
}

// single returns the one value of a parameter, or an empty text if there is none.
func single(q url.Values, name string, maxBytes int) (string, error) {
	switch values := q[name]; {
	case len(values) == 0:
		return "", nil
	case len(values) > 1:
		return "", fmt.Errorf("%w: %s is there %d times", ErrBadReturn, name, len(values))
	case len(values[0]) > maxBytes:
		return "", fmt.Errorf("%w: %s is over %d bytes", ErrBadReturn, name, maxBytes)
	case strings.ContainsFunc(values[0], func(c rune) bool { return c < ' ' || c > '~' }):
		return "", fmt.Errorf("%w: %s has characters outside printable ASCII", ErrBadReturn, name)
	default:
		return values[0], nil
	}
}
