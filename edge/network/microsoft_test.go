package network_test

import (
	"testing"

	"verifyd/edge/network"
	"verifyd/edge/network/netsettings"
)

const tenant = "3338040d-6c67-4c5b-b112-36a304b66dad"

func microsoftMetadata(issuer string) string {
	return `{"issuer":"` + issuer + `","authorization_endpoint":"https://login.microsoftonline.com/common/oauth2/v2.0/authorize",
		"token_endpoint":"https://login.microsoftonline.com/common/oauth2/v2.0/token","jwks_uri":"https://login.microsoftonline.com/common/discovery/v2.0/keys",
		"userinfo_endpoint":"https://login.microsoftonline.com/oidc/userinfo","id_token_signing_alg_values_supported":["ES256"]}`
}

func microsoftPresets() map[string]presetCase {
	claims := func(issuer string) string {
		return `{"iss":"` + issuer + `","tid":"` + tenant +
			`","sub":"AAAAAAAAAAAAAAAAAAAAAIkzqFVrSaSaFHy782bbtaQ","email":"ceo@example.com","email_verified":true,"xms_edov":true}`
	}
	one := "https://login.microsoftonline.com/" + tenant + "/v2.0"
	base := presetCase{
		authorize: "https://login.microsoftonline.com/common/oauth2/v2.0/authorize", scope: "openid",
		token: "POST login.microsoftonline.com/common/oauth2/v2.0/token", claims: claims(one),
		// its e-mail address is ignored
		want: network.Identity{Subject: "AAAAAAAAAAAAAAAAAAAAAIkzqFVrSaSaFHy782bbtaQ"},
	}
	common, single, organizations := base, base, base
	common.settings = netsettings.Settings{
		Kind: "microsoft", Rules: netsettings.Rules{RequireGroups: []string{tenant}},
	}
	common.discovery = "login.microsoftonline.com/common/v2.0/.well-known/openid-configuration"
	common.metadata = microsoftMetadata("https://login.microsoftonline.com/{tenantid}/v2.0")
	common.issuer = one
	common.want.Groups = []string{tenant}
	organizations.settings = netsettings.Settings{
		Kind: "microsoft", Issuer: "https://login.microsoftonline.com/organizations/v2.0",
	}
	organizations.discovery = "login.microsoftonline.com/organizations/v2.0/.well-known/openid-configuration"
	organizations.metadata = common.metadata
	single.settings = netsettings.Settings{Kind: "microsoft", Issuer: one}
	single.discovery = "login.microsoftonline.com/" + tenant + "/v2.0/.well-known/openid-configuration"
	single.metadata = microsoftMetadata(one)
	return map[string]presetCase{
		"microsoft": common, "microsoft, organizations": organizations, "microsoft, one tenant": single,
	}
}

// Each setting accepts its own tenants and no other's: a tenant's token does not pass for another's, nor one
// that is signed with another's key.
func TestMicrosoftTenants(t *testing.T) {
	const consumer, other = "9188040d-6c67-4c5b-b112-36a304b66dad", "4448040d-6c67-4c5b-b112-36a304b66dad"
	issuer := func(tenant string) string { return "https://login.microsoftonline.com/" + tenant + "/v2.0" }
	template := "https://login.microsoftonline.com/{tenantid}/v2.0"
	for name, c := range map[string]struct{ who, metadata, iss, tid, key, stage, class string }{
		"any tenant": {"common", template, issuer(tenant), tenant, template, "", ""},
		"a personal account": {
			"common", template, issuer(consumer), consumer, issuer(consumer), "", "",
		},
		"personal accounts": {
			"consumers", issuer(consumer), issuer(consumer), consumer, issuer(consumer), "", "",
		},
		"one tenant": {tenant, issuer(tenant), issuer(tenant), tenant, template, "", ""},
		"the tenant of personal ones": {
			consumer, issuer(consumer), issuer(consumer), consumer, issuer(consumer), "", "",
		},
		"keys that say nothing": {"common", template, issuer(tenant), tenant, "", "", ""},
		"another's tenant": {
			"common", template, issuer(consumer), tenant, template, "id_token", "issuer",
		},
		"no tenant": {
			"common", template, issuer(tenant), "", template, "id_token", "issuer",
		},
		"the template as issuer": {
			"common", template, template, "{tenantid}", template, "id_token", "issuer",
		},
		"not a tenant": {
			"common", template, issuer("x/../y"), "x/../y", template, "id_token", "issuer",
		},
		"another host": {
			"common", template, "https://login.example.com/" + tenant + "/v2.0", tenant, "", "id_token",
			"issuer",
		},
		"work where personal only": {
			"consumers", issuer(consumer), issuer(tenant), tenant, template, "id_token", "issuer",
		},
		"personal where work only": {
			"organizations", template, issuer(consumer), consumer, issuer(consumer), "id_token", "issuer",
		},
		"one tenant, another's": {
			tenant, issuer(tenant), issuer(consumer), consumer, issuer(consumer), "id_token", "issuer",
		},
		"the personal one, another's": {
			consumer, issuer(consumer), issuer(tenant), tenant, template, "id_token", "issuer",
		},
		"a key of personal accounts": {
			"common", template, issuer(tenant), tenant, issuer(consumer), "id_token", "issuer",
		},
		"a key of another tenant": {
			"organizations", template, issuer(tenant), tenant, issuer(other), "id_token", "issuer",
		},
		"metadata of somebody else": {
			"common", "https://login.example.com/{tenantid}/v2.0", issuer(tenant), tenant, "", "discovery",
			"issuer",
		},
		"metadata of personal accounts": {
			"common", issuer(consumer), issuer(consumer), consumer, "", "discovery", "issuer",
		},
		"metadata of all for personal": {
			"consumers", template, issuer(consumer), consumer, "", "discovery", "issuer",
		},
		"metadata of all for one tenant": {
			tenant, template, issuer(tenant), tenant, "", "discovery", "issuer",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.keyIssuer = c.key
			w.oidc("login.microsoftonline.com/"+c.who+"/v2.0/.well-known/openid-configuration",
				microsoftMetadata(c.metadata),
				`{"sub":"s","iss":"`+c.iss+`","tid":"`+c.tid+`"}`)
			n := w.network(netsettings.Settings{Kind: "microsoft", Issuer: issuer(c.who)})
			_, err := n.Redeem(t.Context(), w.attempt, network.Return{
				Code: plantedCode, State: w.attempt.State,
			})
			wantFailure(t, err, c.stage, c.class)
		})
	}
}
