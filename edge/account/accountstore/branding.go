package accountstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/audit"
	"verifyd/edge/account/branding"
	"verifyd/edge/account/input"
	"verifyd/edge/origin"
	"verifyd/sessions/proof"
)

// SetReturnURL sets the address that the end user's page offers to go back to once a session has ended;
// empty: none. It is the only address that the page ever links to, so nothing that comes with a session can
// lead elsewhere. It must be on one of the origins that the account allows; if the operator sets it, its
// origin is allowed with it. Its errors are ErrNoAccount, ErrNotAllowed and an *input.Error.
func (s accounts) SetReturnURL(ctx context.Context, by access.Actor, id, to string) error {
	if err := input.ReturnURL("return_url", to); err != nil {
		return err
	}
	_, err := s.change(ctx, by, id, access.ActionBranding, func(a *account.Account) (audit.Record, error) {
		if a.ReturnURL == to {
			return audit.Record{}, errUnchanged
		}
		d := audit.Record{What: audit.ReturnURLSet, Detail: map[string]string{"from": a.ReturnURL, "to": to}}
		if site := origin.Of(to); to != "" && !slices.Contains(a.ReturnOrigins, site) {
			if by.Kind != access.ActorOperator || len(a.ReturnOrigins) >= input.MaxOrigins {
				return audit.Record{}, notAllowedOrigin(site, a.ReturnOrigins)
			}
			a.ReturnOrigins = append(slices.Clone(a.ReturnOrigins), site)
			d.Detail["allowed"] = site
		}
		a.ReturnURL = to
		return d, nil
	})
	return err
}

func notAllowedOrigin(origin string, allowed []string) error {
	detail := fmt.Sprintf("%.100q is not one of the allowed sites; allow it first", origin)
	if len(allowed) > 0 {
		detail += ", or give a page of " + strings.Join(allowed, " or ")
	}
	return input.Wrong("return_url", "%s", detail)
}

// SetReturnOrigins sets the sites that a return URL may be on, each exactly: scheme, host and port. The
// origin of the current return URL cannot be left out. Its errors are ErrNoAccount, ErrNotAllowed and an
// *input.Error.
func (s accounts) SetReturnOrigins(ctx context.Context, by access.Actor, id string, sites []string) error {
	origins, err := input.Origins(sites)
	if err != nil {
		return err
	}
	_, err = s.change(ctx, by, id, access.ActionBranding, func(a *account.Account) (audit.Record, error) {
		if slices.Equal(a.ReturnOrigins, origins) {
			return audit.Record{}, errUnchanged
		}
		if used := origin.Of(a.ReturnURL); a.ReturnURL != "" && !slices.Contains(origins, used) {
			return audit.Record{}, input.Wrong("return_origins", "the link back leads to %s; change the "+
				"link before you remove that site", used)
		}
		d := audit.Record{What: audit.ReturnOriginsSet, Detail: map[string]string{
			"from": strings.Join(a.ReturnOrigins, " "), "to": strings.Join(origins, " "),
		}}
		a.ReturnOrigins = origins
		return d, nil
	})
	return err
}

// SetColour sets the colour of the account's sign on the end user's page, #rrggbb; empty: no sign. Its errors
// are ErrNoAccount, ErrNotAllowed and an *input.Error.
func (s accounts) SetColour(ctx context.Context, by access.Actor, id, colour string) error {
	colour, err := input.Colour(colour)
	if err != nil {
		return err
	}
	_, err = s.change(ctx, by, id, access.ActionBranding, func(a *account.Account) (audit.Record, error) {
		if a.Colour == colour {
			return audit.Record{}, errUnchanged
		}
		d := audit.Record{What: audit.ColourSet, Detail: map[string]string{"from": a.Colour, "to": colour}}
		a.Colour = colour
		return d, nil
	})
	return err
}

// Look is how an account's users see it. A nil field stays as it is; an empty colour is removed.
type Look struct {
	Colour, Accent, AccentDark, Button *string
	Logo                               **branding.Logo // pointer to nil: none
}

// SetLook sets how an account's users see it, all of it or nothing. Its errors are ErrNoAccount,
// ErrNotAllowed and an *input.Error.
func (s accounts) SetLook(ctx context.Context, by access.Actor, id string, to Look) error {
	if to.Colour != nil {
		colour, err := input.Colour(*to.Colour)
		if err != nil {
			return err
		}
		to.Colour = &colour
	}
	for _, c := range []struct {
		use    string
		colour **string
	}{{branding.Button, &to.Button}, {branding.Accent, &to.Accent}, {branding.AccentDark, &to.AccentDark}} {
		if *c.colour == nil {
			continue
		}
		colour, err := branding.Colour(c.use, **c.colour)
		if err != nil {
			return input.Wrong(c.use, "%s", err)
		}
		*c.colour = &colour
	}
	_, err := s.change(ctx, by, id, access.ActionBranding, func(a *account.Account) (audit.Record, error) {
		detail := to.apply(a)
		if len(detail) == 0 {
			return audit.Record{}, errUnchanged
		}
		return audit.Record{What: audit.LookSet, Detail: detail}, nil
	})
	return err
}

// apply changes an account, and returns the detail of the change.
func (to Look) apply(a *account.Account) map[string]string {
	detail := map[string]string{}
	set := func(name string, from, to *string) {
		if to != nil && *to != *from {
			detail[name+"_from"], detail[name+"_to"] = *from, *to
			*from = *to
		}
	}
	set("sign", &a.Colour, to.Colour)
	set(branding.Accent, &a.Branding.Accent, to.Accent)
	set(branding.AccentDark, &a.Branding.AccentDark, to.AccentDark)
	set(branding.Button, &a.Branding.Button, to.Button)
	if to.Logo != nil && digest(*to.Logo) != digest(a.Branding.Logo) {
		detail["logo_from"], detail["logo_to"] = digest(a.Branding.Logo), digest(*to.Logo)
		a.Branding.Logo = *to.Logo
	}
	return detail
}

func digest(l *branding.Logo) string {
	if l == nil {
		return ""
	}
	return l.Digest
}

// Binding is what an account requires of its sessions. A nil field stays as it is.
type Binding struct {
	Level *proof.Level // if a start does not set one; empty: the service's
	// MaxUsers is how many platform users one identity may verify, 0 to MaxUsersLimit; 0: any number
	MaxUsers *int
}

// MaxUsersLimit is the maximum that can be set: each is looked up at a sign-in.
const MaxUsersLimit = 10

// SetBinding sets what the account requires of its sessions. Its errors are ErrNoAccount, ErrNotAllowed and
// an *input.Error.
func (s accounts) SetBinding(ctx context.Context, by access.Actor, id string, to Binding) error {
	if to.Level != nil && *to.Level != "" && !to.Level.Known() {
		return input.Wrong("binding", "%.40q is not a binding; use link, code or account", *to.Level)
	}
	if to.MaxUsers != nil && (*to.MaxUsers < 0 || *to.MaxUsers > MaxUsersLimit) {
		return input.Wrong("max_users", "%d is out of range; use 1 to %d, or 0 for any number", *to.MaxUsers,
			MaxUsersLimit)
	}
	_, err := s.change(ctx, by, id, access.ActionBranding, func(a *account.Account) (audit.Record, error) {
		detail := map[string]string{}
		if to.Level != nil && *to.Level != a.Level {
			detail["from"], detail["to"] = string(a.Level), string(*to.Level)
			a.Level = *to.Level
		}
		if to.MaxUsers != nil && *to.MaxUsers != a.MaxUsers {
			detail["users_from"], detail["users_to"] = strconv.Itoa(a.MaxUsers), strconv.Itoa(*to.MaxUsers)
			a.MaxUsers = *to.MaxUsers
		}
		if len(detail) == 0 {
			return audit.Record{}, errUnchanged
		}
		return audit.Record{What: audit.BindingSet, Detail: detail}, nil
	})
	return err
}
