package network_test

import (
	"testing"

	"verifyd/edge/network"
)

const tenant = "3338040d-6c67-4c5b-b112-36a304b66dad"

func microsoftMetadata(issuer string) string {
	return `{"issuer":"` + issuer + `","authorization_endpoint":"https://login.microsoftonline.com/common/oauth2/v2.0/authorize",
		"token_endpoint":"https://login.microsoftonline.com/common/oauth2/v2.0/token","jwks_uri":"https://login.microsoftonline.com/common/discovery/v2.0/keys",
		"userinfo_endpoint":"https://login.microsoftonline.com/oidc/userinfo","id_token_signing_alg_values_supported":["ES256"]}`
}

func microsoftPresets() map[string]presetCase {
	claims := func(issuer string) string {
		return `{"iss":"` + issuer + `","tid":"` + tenant + `","sub":"AAAAAAAAAAAAAAAAAAAAAIkzqFVrSaSaFHy782bbtaQ","email":"ceo@example.com","email_verified":true,"xms_edov":true}`
	}
	one := "https://login.microsoftonline.com/" + tenant + "/v2.0"
	base := presetCase{
		authorize: "https://login.microsoftonline.com/common/oauth2/v2.0/authorize", scope: "openid",
		token: "POST login.microsoftonline.com/common/oauth2/v2.0/token", claims: claims(one),
		want: network.Identity{Subject: "AAAAAAAAAAAAAAAAAAAAAIkzqFVrSaSaFHy782bbtaQ"}, // its e-mail address counts for nothing
	}
	common, single, organizations := base, base, base
	common.settings = network.Settings{Kind: "microsoft", Rules: network.Rules{RequireGroups: []string{tenant}}}
	common.discovery = "login.microsoftonline.com/common/v2.0/.well-known/openid-configuration"
	common.metadata = microsoftMetadata("https://login.microsoftonline.com/{tenantid}/v2.0")
	common.issuer = one
	common.want.Groups = []string{tenant}
	organizations.settings = network.Settings{Kind: "microsoft", Issuer: "https://login.microsoftonline.com/organizations/v2.0"}
	organizations.discovery = "login.microsoftonline.com/organizations/v2.0/.well-known/openid-configuration"
	organizations.metadata = common.metadata
	single.settings = network.Settings{Kind: "microsoft", Issuer: one}
	single.discovery = "login.microsoftonline.com/" + tenant + "/v2.0/.well-known/openid-configuration"
	single.metadata = microsoftMetadata(one)
	return map[string]presetCase{"microsoft": common, "microsoft, organizations": organizations, "microsoft, one tenant": single}
}

// A tenant's token must not pass for another's, nor for a tenant that the settings keep out.
func TestMicrosoftTenants(t *testing.T) {
	const consumer = "9188040d-6c67-4c5b-b112-36a304b66dad"
	issuer := func(tenant string) string { return "https://login.microsoftonline.com/" + tenant + "/v2.0" }
	template := "https://login.microsoftonline.com/{tenantid}/v2.0"
	for name, c := range map[string]struct{ who, metadata, iss, tid, stage, class string }{
		"any tenant":                {"common", template, issuer(tenant), tenant, "", ""},
		"a personal account":        {"common", template, issuer(consumer), consumer, "", ""},
		"personal accounts":         {"consumers", issuer(consumer), issuer(consumer), consumer, "", ""},
		"another's tenant":          {"common", template, issuer(consumer), tenant, "id_token", "issuer"},
		"no tenant":                 {"common", template, issuer(tenant), "", "id_token", "issuer"},
		"the template as issuer":    {"common", template, template, "{tenantid}", "id_token", "issuer"},
		"not a tenant":              {"common", template, issuer("x/../y"), "x/../y", "id_token", "issuer"},
		"another host":              {"common", template, "https://login.example.com/" + tenant + "/v2.0", tenant, "id_token", "issuer"},
		"work where personal only":  {"consumers", issuer(consumer), issuer(tenant), tenant, "id_token", "issuer"},
		"personal where work only":  {"organizations", template, issuer(consumer), consumer, "id_token", "issuer"},
		"one tenant, another's":     {tenant, issuer(tenant), issuer(consumer), consumer, "id_token", "issuer"},
		"metadata of somebody else": {"common", "https://login.example.com/{tenantid}/v2.0", issuer(tenant), tenant, "discovery", "issuer"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.oidc("login.microsoftonline.com/"+c.who+"/v2.0/.well-known/openid-configuration", microsoftMetadata(c.metadata),
				`{"sub":"s","iss":"`+c.iss+`","tid":"`+c.tid+`"}`)
			n := w.network(network.Settings{Kind: "microsoft", Issuer: issuer(c.who)})
			_, err := n.Redeem(t.Context(), w.attempt, network.Return{Code: plantedCode, State: w.attempt.State})
			wantTrouble(t, err, c.stage, c.class)
		})
	}
}
