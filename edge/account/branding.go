package account

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"verifyd/edge/origin"
)

// What records say of an account's branding.
const (
	ReturnOriginsSet = "return_origins.set" // Detail: from, to
	ReturnURLSet     = "return_url.set"     // Detail: from, to; allowed, an origin, where the operator allowed it at the same time
	ColourSet        = "colour.set"         // Detail: from, to
)

const (
	// returnURLBytes bounds a return URL, as a callback URL is bounded.
	returnURLBytes = 2048
	// maxOrigins bounds the origins of an account: what a form and a record in the audit log can show.
	maxOrigins = 10
)

// SetReturnURL sets where the end user's page offers to go back to once a session has ended; empty: nowhere.
// It is the one address that the page will ever link to, so nothing that comes with a session can lead
// elsewhere. It must be on one of the origins that the account allows; where the operator sets it, its origin
// is allowed with it. Its errors are ErrNoAccount, ErrNotAllowed and an *InputError.
func (s *Store) SetReturnURL(ctx context.Context, by Actor, id, to string) error {
	if err := checkReturnURL("return_url", to); err != nil {
		return err
	}
	_, err := s.change(ctx, by, id, ActionBranding, func(a *Account, _ time.Time) (deed, error) {
		if a.ReturnURL == to {
			return deed{}, errUnchanged
		}
		d := deed{what: ReturnURLSet, detail: map[string]string{"from": a.ReturnURL, "to": to}}
		if site := origin.Of(to); to != "" && !slices.Contains(a.ReturnOrigins, site) {
			if by.Kind != ActorOperator || len(a.ReturnOrigins) >= maxOrigins {
				return deed{}, notAllowedOrigin(site, a.ReturnOrigins)
			}
			a.ReturnOrigins = append(slices.Clone(a.ReturnOrigins), site)
			d.detail["allowed"] = site
		}
		a.ReturnURL = to
		return d, nil
	})
	return err
}

func notAllowedOrigin(origin string, allowed []string) error {
	detail := fmt.Sprintf("%.100q is none of the allowed sites; allow it first", origin)
	if len(allowed) > 0 {
		detail += ", or give a page of " + strings.Join(allowed, " or ")
	}
	return &InputError{Field: "return_url", Detail: detail}
}

// SetReturnOrigins sets the sites that a return URL may be on, each exactly: scheme, host and port. That of
// the return URL that is set cannot be left out. Its errors are ErrNoAccount, ErrNotAllowed and an
// *InputError.
func (s *Store) SetReturnOrigins(ctx context.Context, by Actor, id string, sites []string) error {
	origins, err := parseOrigins(sites)
	if err != nil {
		return err
	}
	_, err = s.change(ctx, by, id, ActionBranding, func(a *Account, _ time.Time) (deed, error) {
		if slices.Equal(a.ReturnOrigins, origins) {
			return deed{}, errUnchanged
		}
		if used := origin.Of(a.ReturnURL); a.ReturnURL != "" && !slices.Contains(origins, used) {
			return deed{}, &InputError{
				Field:  "return_origins",
				Detail: fmt.Sprintf("the link back leads to %s; change the link before you take that site away", used),
			}
		}
		d := deed{
			what: ReturnOriginsSet, detail: map[string]string{
				"from": strings.Join(a.ReturnOrigins, " "), "to": strings.Join(origins, " "),
			},
		}
		a.ReturnOrigins = origins
		return d, nil
	})
	return err
}

// parseOrigins reads sites as people write them, and returns their origins, each once.
func parseOrigins(sites []string) ([]string, error) {
	var origins []string
	for _, site := range sites {
		if err := checkReturnURL("return_origins", site); err != nil {
			return nil, err
		}
		allowed := origin.Of(site)
		if rest := strings.TrimSuffix(strings.ToLower(site), "/"); rest != allowed && rest != allowed+":443" {
			return nil, &InputError{
				Field:  "return_origins",
				Detail: fmt.Sprintf("%.100q is more than a site; leave out what follows the host, for example %s", site, allowed),
			}
		}
		if !slices.Contains(origins, allowed) {
			origins = append(origins, allowed)
		}
	}
	if len(origins) > maxOrigins {
		return nil, &InputError{
			Field:  "return_origins",
			Detail: fmt.Sprintf("these are %d sites, at most %d are taken", len(origins), maxOrigins),
		}
	}
	return origins, nil
}

// SetColour sets the colour of the account's sign on the end user's page, #rrggbb; empty: no sign. Its errors
// are ErrNoAccount, ErrNotAllowed and an *InputError.
func (s *Store) SetColour(ctx context.Context, by Actor, id, colour string) error {
	if colour != "" && !colourForm.MatchString(colour) {
		return &InputError{
			Field: "colour", Detail: fmt.Sprintf(
				"%q is not a colour; write red, green and blue in hexadecimal, for example #1f5fd0", colour),
		}
	}
	colour = strings.ToLower(colour)
	_, err := s.change(ctx, by, id, ActionBranding, func(a *Account, _ time.Time) (deed, error) {
		if a.Colour == colour {
			return deed{}, errUnchanged
		}
		d := deed{what: ColourSet, detail: map[string]string{"from": a.Colour, "to": colour}}
		a.Colour = colour
		return d, nil
	})
	return err
}

var colourForm = regexp.MustCompile(`^#[0-9a-fA-F]{6}$`)

// checkReturnURL checks an address or a site that users are sent back to. It wants https, so that nobody on
// the way can change where users arrive, and an address that shows where it leads.
func checkReturnURL(field, s string) error {
	if s == "" && field == "return_url" { // nowhere
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
	return &InputError{Field: field, Detail: fmt.Sprintf("%.100q %s; give %s", s, wrong, example)}
}
