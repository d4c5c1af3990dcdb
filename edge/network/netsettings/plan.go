package netsettings

import (
	"cmp"
	"slices"
	"strconv"
	"time"
)

// Plan is how requests to a network are made and its answers read, beyond its addresses: from the table of
// presets, or from the settings of the general kinds.
type Plan struct {
	Names                  []string // claims with a name for people, best first
	Email, Created, Groups Fact
}

// Plan returns the plan of settings with their defaults filled.
func (s Settings) Plan() Plan {
	p := Plan{Email: standardEmail, Created: Fact{Claim: s.CreatedClaim}, Groups: Fact{Claim: "groups"}}
	if s.Kind == KindOAuth2 {
		p.Email.Scope = "" // a name of OpenID Connect's; the operator knows the provider's
	}
	if known, ok := presets[s.Kind]; ok {
		p = Plan{Names: known.names, Email: known.email, Created: known.created, Groups: known.groups}
	}
	if s.GroupsClaim != "" {
		p.Groups = Fact{Claim: s.GroupsClaim}
	}
	if len(p.Names) == 0 {
		p.Names = usualNames
	}
	return p
}

// Wanted are the facts that the settings' rules judge by.
func (s Settings) Wanted() []Fact {
	p := s.Plan()
	var out []Fact
	if len(s.EmailDomains) > 0 {
		out = append(out, p.Email)
	}
	if s.MinAccountAge > 0 {
		out = append(out, p.Created)
	}
	if len(s.RequireGroups) > 0 {
		out = append(out, p.Groups)
	}
	return out
}

// AskedScopes are the scopes to request: those of the settings, and those that the rules add.
func (s Settings) AskedScopes() []string {
	scopes := slices.Clone(s.Scopes)
	for _, f := range s.Wanted() {
		if f.Scope != "" && !slices.Contains(scopes, f.Scope) {
			scopes = append(scopes, f.Scope)
		}
	}
	return scopes
}

// ClaimsRequest is the claims parameter that the rules need (OpenID Connect Core 1.0 §5.5); empty for none.
func (s Settings) ClaimsRequest() string {
	for _, f := range s.Wanted() {
		if f.Request != "" {
			return f.Request
		}
	}
	return ""
}

// SignInAgain returns the parameters of an authorization request that have a user sign in again: those of
// OpenID Connect Core 1.0 §3.1.2.1, or what the network has in their place. A plain OAuth 2 server ignores
// what it does not know (RFC 6749 §3.1). Steam has no such parameter, and asks whoever comes.
func (s Settings) SignInAgain(maxAge time.Duration) map[string]string {
	switch again := presets[s.Kind].again; {
	case again != nil:
		return again
	case s.Protocol() == KindOIDC:
		return map[string]string{
			"prompt": "login", "max_age": strconv.FormatInt(int64(maxAge/time.Second), 10),
		}
	default:
		return map[string]string{"prompt": cmp.Or(s.Prompt, "login")}
	}
}

// usualNames are the claims with a name for people, best first (OpenID Connect Core 1.0 §5.1; the last three
// are common with plain OAuth 2).
var usualNames = []string{"name", "preferred_username", "nickname", "display_name", "username", "login"}
