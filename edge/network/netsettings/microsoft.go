package netsettings

import (
	"regexp"
	"strings"
)

// Microsoft has one set of metadata for all tenants, and an issuer for each. The issuer setting decides who
// may sign in: anybody (common), work and school accounts (organizations), personal ones (consumers), or one
// tenant. Only the first three stand for an issuer other than themselves; a tenant, that of personal accounts
// too, is an issuer like any other and accepts itself alone.
const (
	microsoftBase          = "https://login.microsoftonline.com/"
	microsoftAnyTenant     = microsoftBase + "common/v2.0"
	microsoftOrganizations = microsoftBase + "organizations/v2.0"
	microsoftConsumerOnly  = microsoftBase + "consumers/v2.0"
	microsoftTenantID      = "{tenantid}"
	// what the metadata of the first two names as issuer
	microsoftTemplate  = microsoftBase + microsoftTenantID + "/v2.0"
	consumerTenant     = "9188040d-6c67-4c5b-b112-36a304b66dad"
	microsoftConsumers = microsoftBase + consumerTenant + "/v2.0" // what the metadata of the third names
)

var tenantForm = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// Tenancy is what a multi-tenant issuer stands for.
type Tenancy struct {
	Named  string                   // the issuer that its metadata names
	admits func(tenant string) bool // which tenants it allows
}

var tenancies = map[string]Tenancy{
	microsoftAnyTenant:     {microsoftTemplate, func(string) bool { return true }},
	microsoftOrganizations: {microsoftTemplate, func(tenant string) bool { return tenant != consumerTenant }},
	microsoftConsumerOnly: {
		microsoftConsumers, func(tenant string) bool { return tenant == consumerTenant },
	},
}

// Tenants returns what the settings' issuer stands for; not ok if it stands for itself alone. Only the
// settings decide that: metadata and tokens cannot widen the set of accepted issuers.
func (s Settings) Tenants() (t Tenancy, ok bool) {
	t, ok = tenancies[s.Issuer]
	return t, ok && s.Kind == KindMicrosoft
}

// IsIssuer reports whether an issuer is the one of the settings or, for a multi-tenant setting, that of a
// tenant which it allows.
func (s Settings) IsIssuer(issuer string) bool {
	t, many := s.Tenants()
	if !many {
		return issuer == s.Issuer
	}
	tenant, ok := between(issuer, microsoftBase, "/v2.0")
	return ok && tenantForm.MatchString(tenant) && t.admits(tenant)
}

// IsTenantIssuer reports whether an issuer is one that the settings allow, and a tenant's.
func (s Settings) IsTenantIssuer(issuer, tenant string) bool {
	return s.IsIssuer(issuer) && issuer == microsoftBase+tenant+"/v2.0"
}

// KeySignsFor reports whether a key signs tokens of a tenant's issuer. A key of Microsoft's states whose
// tokens it signs: a tenant's, or everybody's by the template
// (https://learn.microsoft.com/en-us/entra/identity-platform/access-tokens#validate-the-issuer).
func KeySignsFor(keyIssuer, issuer, tenant string) bool {
	return keyIssuer == "" || issuer == strings.ReplaceAll(keyIssuer, microsoftTenantID, tenant)
}

// between returns the text between a prefix and a suffix.
func between(s, prefix, suffix string) (string, bool) {
	s, head := strings.CutPrefix(s, prefix)
	s, tail := strings.CutSuffix(s, suffix)
	return s, head && tail
}
