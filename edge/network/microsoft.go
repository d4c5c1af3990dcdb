package network

import "regexp"

// Microsoft has one set of metadata for all tenants, and an issuer for each. The issuer setting says who may sign in: anybody
// (common), work and school accounts (organizations), personal ones (consumers), or one tenant, which then is an issuer like any other.
const (
	microsoftBase          = "https://login.microsoftonline.com/"
	microsoftAnyTenant     = microsoftBase + "common/v2.0"
	microsoftOrganizations = microsoftBase + "organizations/v2.0"
	microsoftConsumerOnly  = microsoftBase + "consumers/v2.0"
	microsoftTemplate      = microsoftBase + "{tenantid}/v2.0" // what the metadata of the first two names as issuer
	consumerTenant         = "9188040d-6c67-4c5b-b112-36a304b66dad"
	microsoftConsumers     = microsoftBase + consumerTenant + "/v2.0" // what the metadata of the third names
)

var tenantForm = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// manyTenants reports whether the settings' issuer stands for more than itself.
func (n *Network) manyTenants() bool {
	if n.settings.Kind != KindMicrosoft {
		return false
	}
	switch n.settings.Issuer {
	case microsoftAnyTenant, microsoftOrganizations, microsoftConsumerOnly:
		return true
	}
	return false
}

// anyTenant reports whether an ID token's issuer is to be found from its tenant.
func (p *provider) anyTenant() bool {
	return p.issuer == microsoftTemplate || p.issuer == microsoftConsumers
}

// isTenant reports whether an ID token's issuer is that of its tid claim, and the tenant one that the settings let in. Both are in the
// signed token; that they agree keeps one tenant's token from passing for another's.
func (n *Network) isTenant(issuer string, doc claims) bool {
	tenant, err := doc.text("tid")
	if err != nil || !tenantForm.MatchString(tenant) || issuer != microsoftBase+tenant+"/v2.0" {
		return false
	}
	switch n.settings.Issuer {
	case microsoftConsumerOnly:
		return tenant == consumerTenant
	case microsoftOrganizations:
		return tenant != consumerTenant
	}
	return true
}

// isIssuer reports whether the iss parameter of a return is this provider's.
func (n *Network) isIssuer(p *provider, issuer string) bool {
	if !p.anyTenant() {
		return issuer == n.settings.Issuer
	}
	tenant, ok := cutAround(issuer, microsoftBase, "/v2.0")
	return ok && tenantForm.MatchString(tenant)
}
