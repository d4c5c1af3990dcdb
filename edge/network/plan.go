package network

import (
	"slices"
)

// plan is how a network is asked and read, beyond its addresses: from the table of presets, or from the
// settings of the general kinds.
type plan struct {
	names                  []string
	email, created, groups fact
}

// plan returns the plan of settings with their defaults filled.
func (s Settings) plan() plan {
	p := plan{email: standardEmail, created: fact{claim: s.CreatedClaim}, groups: fact{claim: "groups"}}
	if s.Kind == KindOAuth2 {
		p.email.scope = "" // a name of OpenID Connect's; the operator knows the provider's
	}
	if known, ok := presets[s.Kind]; ok {
		p = plan{names: known.names, email: known.email, created: known.created, groups: known.groups}
	}
	if s.GroupsClaim != "" {
		p.groups = fact{claim: s.GroupsClaim}
	}
	if len(p.names) == 0 {
		p.names = usualNames
	}
	return p
}

// wanted are the facts that the settings' rules judge by.
func (s Settings) wanted() []fact {
	p := s.plan()
	var out []fact
	if len(s.EmailDomains) > 0 {
		out = append(out, p.email)
	}
	if s.MinAccountAge > 0 {
		out = append(out, p.created)
	}
	if len(s.RequireGroups) > 0 {
		out = append(out, p.groups)
	}
	return out
}

// scopes are the scopes to ask for: those of the settings, and what the rules add.
func (s Settings) scopes() []string {
	scopes := slices.Clone(s.Scopes)
	for _, f := range s.wanted() {
		if f.scope != "" && !slices.Contains(scopes, f.scope) {
			scopes = append(scopes, f.scope)
		}
	}
	return scopes
}

// claimsRequest is the claims parameter that the rules need (OpenID Connect Core 1.0 §5.5); empty for none.
func (s Settings) claimsRequest() string {
	for _, f := range s.wanted() {
		if f.request != "" {
			return f.request
		}
	}
	return ""
}
