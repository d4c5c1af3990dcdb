package netsettings

import "slices"

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

// usualNames are the claims with a name for people, best first (OpenID Connect Core 1.0 §5.1; the last three
// are common with plain OAuth 2).
var usualNames = []string{"name", "preferred_username", "nickname", "display_name", "username", "login"}
