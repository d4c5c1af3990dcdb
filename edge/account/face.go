package account

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// What records say of an account's face.
const (
	ReturnURLSet = "return_url.set" // Detail: from, to
	ColourSet    = "colour.set"     // Detail: from, to
)

// returnURLBytes bounds a return URL, as a callback URL is bounded.
const returnURLBytes = 2048

// SetReturnURL sets where the end user's page offers to go back to once a session has ended; empty: nowhere. It is the one address
// that the page will ever link to, so nothing that comes with a session can lead elsewhere. Its errors are ErrNoAccount,
// ErrNotAllowed and an *InputError.
func (s *Store) SetReturnURL(ctx context.Context, by Actor, id, to string) error {
	if err := checkReturnURL(to); err != nil {
		return err
	}
	return s.setFace(ctx, by, id, ReturnURLSet, to, func(a *Account) *string { return &a.ReturnURL })
}

// SetColour sets the colour of the account's sign on the end user's page, #rrggbb; empty: no sign. Its errors are ErrNoAccount,
// ErrNotAllowed and an *InputError.
func (s *Store) SetColour(ctx context.Context, by Actor, id, colour string) error {
	if colour != "" && !colourForm.MatchString(colour) {
		return &InputError{Field: "colour", Detail: fmt.Sprintf("%q is not a colour; write red, green and blue in hexadecimal, for example #1f5fd0", colour)}
	}
	return s.setFace(ctx, by, id, ColourSet, strings.ToLower(colour), func(a *Account) *string { return &a.Colour })
}

var colourForm = regexp.MustCompile(`^#[0-9a-fA-F]{6}$`)

func (s *Store) setFace(ctx context.Context, by Actor, id, what, to string, field func(*Account) *string) error {
	_, err := s.change(ctx, by, id, ActionFace, func(a *Account, _ time.Time) (deed, error) {
		at := field(a)
		if *at == to {
			return deed{}, errUnchanged
		}
		d := deed{what: what, detail: map[string]string{"from": *at, "to": to}}
		*at = to
		return d, nil
	})
	return err
}

// checkReturnURL wants https, so that nobody on the way can change where users arrive, and an address that shows where it leads.
func checkReturnURL(s string) error {
	if s == "" {
		return nil
	}
	u, err := url.Parse(s)
	wrong := ""
	switch {
	case len(s) > returnURLBytes:
		wrong = fmt.Sprintf("has %d bytes, at most %d are taken", len(s), returnURLBytes)
	case err != nil || !plain(s, returnURLBytes) || strings.ContainsAny(s, " \\"):
		wrong = "is not a URL"
	case u.Scheme != "https":
		wrong = "does not begin with https://"
	case u.Hostname() == "" || u.Opaque != "":
		wrong = "names no host"
	case u.User != nil:
		wrong = "has a user name or password in it, which every user would see"
	}
	if wrong == "" {
		return nil
	}
	return &InputError{Field: "return_url", Detail: fmt.Sprintf("%.100q %s; give the page that users come back to, for example https://example.com/verified", s, wrong)}
}
