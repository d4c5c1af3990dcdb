package network_test

import (
	"maps"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"verifyd/edge/network"
	"verifyd/edge/network/netsettings"
)

// presetCase is what a network documents, and the expected result.
type presetCase struct {
	settings  netsettings.Settings
	discovery string // oidc
	metadata  string // oidc; ES256 in the place of RS256, as for every stand-in here
	claims    string // oidc
	answers   map[string]string
	authorize string // origin and path
	scope     string
	claimsAsk string
	token     string // the token endpoint
	basic     bool
	issuer    string // iss of the return
	want      network.Identity
}

func presetCases() map[string]presetCase {
	out := map[string]presetCase{}
	for _, group := range []map[string]presetCase{plainPresets(), oidcPresets(), microsoftPresets()} {
		maps.Copy(out, group)
	}
	return out
}

const bearer = `{"access_token":"` + plantedToken +
	`","token_type":"Bearer","expires_in":604800,"refresh_token":"r","scope":"identify"}`

func plainPresets() map[string]presetCase {
	discordUser := `{"id":"175928847299117063","username":"nelly","discriminator":"1337","global_name":null,"avatar":null,"verified":true,"email":"nelly@discord.com","flags":64}`
	githubUser := `{"login":"octocat","id":583231,"node_id":"x","name":"The Octocat","email":"octocat@github.com","created_at":"2011-01-25T18:44:36Z"}`
	vatsimUser := `{"data":{"cid":"10000010","personal":{"name_full":"Web Ten","email":"auth.dev10@vatsim.net"},"vatsim":{"rating":{"id":11},"division":{"id":"EMEA","name":"x"}},"oauth":{"token_valid":"true"}}}`
	github := map[string]string{
		"POST github.com/login/oauth/access_token": `{"access_token":"` + plantedToken +
			`","scope":"","token_type":"bearer"}`,
		"GET api.github.com/user": githubUser,
		"GET api.github.com/user/emails": `[{"email":"octocat@github.com","verified":true,"primary":true,"visibility":"public"},
			{"email":"o@unproven.example","verified":false,"primary":false},{"email":"o@work.example","verified":true,"primary":false}]`,
		"GET api.github.com/user/orgs": `[{"login":"github","id":1},{"login":"octo-org","id":2}]`,
	}
	discord := map[string]string{
		"POST discord.com/api/oauth2/token":        bearer,
		"GET discord.com/api/v10/users/@me":        discordUser,
		"GET discord.com/api/v10/users/@me/guilds": `[{"id":"197038439483310086","name":"Testers","owner":false},{"id":"2","name":"Other"}]`,
	}
	return map[string]presetCase{
		"discord": {
			settings: netsettings.Settings{Kind: "discord"}, answers: discord,
			authorize: "https://discord.com/oauth2/authorize", scope: "identify",
			token: "POST discord.com/api/oauth2/token", basic: true,
			issuer: "https://discord.com",
			want: network.Identity{
				Subject: "175928847299117063", DisplayName: "nelly", Email: "nelly@discord.com",
				CreatedAt: time.UnixMilli(1462015105796),
			},
		},
		"discord with rules": {
			settings: netsettings.Settings{Kind: "discord", Rules: netsettings.Rules{
				EmailDomains: []string{"discord.com"}, RequireGroups: []string{"2"},
				MinAccountAge: netsettings.Span(time.Hour),
			}},
			answers: discord, authorize: "https://discord.com/oauth2/authorize",
			scope: "identify email guilds",
			token: "POST discord.com/api/oauth2/token", basic: true,
			want: network.Identity{
				Subject: "175928847299117063", DisplayName: "nelly", Email: "nelly@discord.com",
				CreatedAt: time.UnixMilli(1462015105796),
				Groups:    []string{"197038439483310086", "2"},
			},
		},
		"github": {
			settings: netsettings.Settings{Kind: "github"}, answers: github,
			authorize: "https://github.com/login/oauth/authorize",
			token:     "POST github.com/login/oauth/access_token",
			issuer:    "https://github.com/login/oauth",
			want: network.Identity{
				Subject: "583231", DisplayName: "The Octocat",
				CreatedAt: time.Date(2011, 1, 25, 18, 44, 36, 0, time.UTC),
			},
		},
		"github with rules": {
			settings: netsettings.Settings{Kind: "github", Rules: netsettings.Rules{
				EmailDomains:  []string{"unproven.example", "WORK.example"},
				RequireGroups: []string{"octo-org"}, MinAccountAge: netsettings.Span(time.Hour),
			}},
			answers: github, authorize: "https://github.com/login/oauth/authorize",
			scope: "user:email read:org",
			token: "POST github.com/login/oauth/access_token",
			want: network.Identity{
				Subject: "583231", DisplayName: "The Octocat", Email: "o@work.example",
				CreatedAt: time.Date(2011, 1, 25, 18, 44, 36, 0, time.UTC),
				Groups:    []string{"github", "octo-org"},
			},
		},
		"vatsim": {
			settings: netsettings.Settings{Kind: "vatsim",
				Rules: netsettings.Rules{RequireGroups: []string{"EMEA"}}},
			answers: map[string]string{
				"POST auth.vatsim.net/oauth/token": `{"scopes":["vatsim_details"],"token_type":"Bearer","expires_in":604800,"access_token":"` + plantedToken + `"}`,
				"GET auth.vatsim.net/api/user":     vatsimUser,
			},
			authorize: "https://auth.vatsim.net/oauth/authorize", scope: "vatsim_details",
			token: "POST auth.vatsim.net/oauth/token",
			want:  network.Identity{Subject: "10000010", DisplayName: "10000010", Groups: []string{"EMEA"}},
		},
	}
}

func oidcPresets() map[string]presetCase {
	google := `{"issuer":"https://accounts.google.com","authorization_endpoint":"https://accounts.google.com/o/oauth2/v2/auth",
		"token_endpoint":"https://accounts.google.com/token","userinfo_endpoint":"https://accounts.google.com/userinfo",
		"jwks_uri":"https://accounts.google.com/oauth2/v3/keys","id_token_signing_alg_values_supported":["ES256"]}`
	gitlab := func(host string) string {
		return `{"issuer":"https://` + host + `","authorization_endpoint":"https://` + host +
			`/oauth/authorize","token_endpoint":"https://` + host +
			`/oauth/token","userinfo_endpoint":"https://` + host + `/oauth/userinfo","jwks_uri":"https://` +
			host +
			`/oauth/discovery/keys","id_token_signing_alg_values_supported":["ES256"]}`
	}
	twitch := `{"authorization_endpoint":"https://id.twitch.tv/oauth2/authorize","claims_parameter_supported":true,
		"id_token_signing_alg_values_supported":["ES256"],"issuer":"https://id.twitch.tv/oauth2","jwks_uri":"https://id.twitch.tv/oauth2/keys",
		"token_endpoint":"https://id.twitch.tv/oauth2/token","token_endpoint_auth_methods_supported":["client_secret_post"],
		"userinfo_endpoint":"https://id.twitch.tv/oauth2/userinfo"}`
	roblox := `{"issuer":"https://apis.roblox.com/oauth/","authorization_endpoint":"https://apis.roblox.com/oauth/v1/authorize",
		"token_endpoint":"https://apis.roblox.com/oauth/v1/token","userinfo_endpoint":"https://apis.roblox.com/oauth/v1/userinfo",
		"jwks_uri":"https://apis.roblox.com/oauth/v1/keys","id_token_signing_alg_values_supported":["ES256"]}`
	return map[string]presetCase{
		"google": {
			settings:  netsettings.Settings{Kind: "google"},
			discovery: "accounts.google.com/.well-known/openid-configuration", metadata: google,
			claims:    `{"sub":"10769150350006150715113082367"}`,
			authorize: "https://accounts.google.com/o/oauth2/v2/auth", scope: "openid",
			token: "POST accounts.google.com/token", basic: true,
			want: network.Identity{Subject: "10769150350006150715113082367"},
		},
		"google with rules": {
			settings: netsettings.Settings{
				Kind: "google", Rules: netsettings.Rules{
					EmailDomains: []string{"example.com"}, RequireGroups: []string{"example.com"},
				},
			},
			// As documented: in the ID token.
			discovery: "accounts.google.com/.well-known/openid-configuration", metadata: google,
			claims:    `{"sub":"1","email":"a@example.com","email_verified":true,"hd":"example.com"}`,
			authorize: "https://accounts.google.com/o/oauth2/v2/auth", scope: "openid email",
			token: "POST accounts.google.com/token", basic: true,
			want: network.Identity{Subject: "1", Email: "a@example.com", Groups: []string{"example.com"}},
		},
		"gitlab": {
			settings:  netsettings.Settings{Kind: "gitlab"},
			discovery: "gitlab.com/.well-known/openid-configuration", metadata: gitlab("gitlab.com"),
			claims:    `{"sub":"42","sub_legacy":"x","groups_direct":["mygroup"]}`,
			authorize: "https://gitlab.com/oauth/authorize", scope: "openid",
			token: "POST gitlab.com/oauth/token", basic: true,
			want: network.Identity{Subject: "42"},
		},
		"gitlab, self-managed, with groups": {
			settings: netsettings.Settings{
				Kind: "gitlab", Issuer: "https://gitlab.example.org", Rules: netsettings.Rules{
					RequireGroups: []string{"crew"},
				},
			},
			discovery: "gitlab.example.org/.well-known/openid-configuration",
			metadata:  gitlab("gitlab.example.org"), claims: `{"sub":"42"}`,
			answers: map[string]string{
				"GET gitlab.example.org/oauth/userinfo": `{"sub":"42","nickname":"sailor","groups":["harbor","harbor/crew","crew"],"email_verified":false}`,
			},
			authorize: "https://gitlab.example.org/oauth/authorize", scope: "openid",
			token: "POST gitlab.example.org/oauth/token", basic: true,
			want: network.Identity{
				Subject: "42", DisplayName: "sailor", Groups: []string{"harbor", "harbor/crew", "crew"},
			},
		},
		"twitch": {
			settings:  netsettings.Settings{Kind: "twitch"},
			discovery: "id.twitch.tv/oauth2/.well-known/openid-configuration", metadata: twitch,
			claims:    `{"sub":"713936733","azp":"client","preferred_username":"scott"}`,
			authorize: "https://id.twitch.tv/oauth2/authorize", scope: "openid",
			token: "POST id.twitch.tv/oauth2/token",
			want:  network.Identity{Subject: "713936733", DisplayName: "scott"},
		},
		"twitch with e-mail": {
			settings: netsettings.Settings{
				Kind: "twitch", Rules: netsettings.Rules{EmailDomains: []string{"example.com"}},
			},
			discovery: "id.twitch.tv/oauth2/.well-known/openid-configuration", metadata: twitch,
			claims:    `{"sub":"7","azp":"client","email":"s@example.com","email_verified":true}`,
			authorize: "https://id.twitch.tv/oauth2/authorize", scope: "openid user:read:email",
			token:     "POST id.twitch.tv/oauth2/token",
			claimsAsk: `{"id_token":{"email":null,"email_verified":null}}`,
			want:      network.Identity{Subject: "7", Email: "s@example.com"},
		},
		"roblox": {
			settings:  netsettings.Settings{Kind: "roblox"},
			discovery: "apis.roblox.com/oauth/.well-known/openid-configuration", metadata: roblox,
			claims:    `{"sub":"1516563360"}`,
			authorize: "https://apis.roblox.com/oauth/v1/authorize", scope: "openid",
			token: "POST apis.roblox.com/oauth/v1/token", basic: true,
			want: network.Identity{Subject: "1516563360"},
		},
		"roblox with age": {
			settings: netsettings.Settings{
				Kind: "roblox", Rules: netsettings.Rules{MinAccountAge: netsettings.Span(24 * time.Hour)},
			},
			discovery: "apis.roblox.com/oauth/.well-known/openid-configuration", metadata: roblox,
			claims: `{"sub":"1516563360"}`,
			answers: map[string]string{
				"GET apis.roblox.com/oauth/v1/userinfo": `{"sub":"1516563360","name":"exampleuser","created_at":1584682495,"picture":null}`,
			},
			authorize: "https://apis.roblox.com/oauth/v1/authorize", scope: "openid profile",
			token: "POST apis.roblox.com/oauth/v1/token", basic: true,
			want: network.Identity{
				Subject: "1516563360", DisplayName: "exampleuser", CreatedAt: time.Unix(1584682495, 0).UTC(),
			},
		},
	}
}

func TestPresetsSpeakAsTheirNetworksDocument(t *testing.T) {
	for name, c := range presetCases() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			for where, body := range c.answers {
				w.answers[where] = canned(body)
			}
			if c.discovery != "" {
				w.oidc(c.discovery, c.metadata, c.claims)
			}
			n := w.network(c.settings)
			if n.ID() != c.settings.Kind || n.Name() == "" {
				t.Errorf("id %q, name %q", n.ID(), n.Name())
			}
			w.checkAuthorize(n, c)
			ret := network.Return{Code: plantedCode, State: w.attempt.State, Issuer: c.issuer}
			got, err := n.Redeem(t.Context(), w.attempt, ret)
			if err != nil {
				t.Fatal(err)
			}
			if !got.CreatedAt.Equal(c.want.CreatedAt) {
				t.Errorf("created at %v, want %v", got.CreatedAt, c.want.CreatedAt)
			}
			got.CreatedAt = c.want.CreatedAt
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("identity = %+v, want %+v", got, c.want)
			}
			form := w.forms[c.token]
			if w.times(c.token) != 1 || w.basic[c.token] != c.basic || form.Has("client_secret") == c.basic ||
				form.Get("code_verifier") != w.attempt.Verifier {
				t.Errorf("token endpoint asked %d times, basic %v, form %v; all asked: %v", w.times(c.token),
					w.basic[c.token], form, w.asked)
			}
		})
	}
}

func (w *world) checkAuthorize(n *network.Network, c presetCase) {
	w.t.Helper()
	raw, err := n.AuthURL(w.t.Context(), w.attempt)
	if err != nil {
		w.t.Fatal(err)
	}
	u, err := url.Parse(raw)
	if err != nil {
		w.t.Fatal(err)
	}
	q := u.Query()
	if at := u.Scheme + "://" + u.Host + u.Path; at != c.authorize || q.Get("scope") != c.scope ||
		q.Get("claims") != c.claimsAsk {
		w.t.Errorf("sent to %s, scope %q, claims %q", at, q.Get("scope"), q.Get("claims"))
	}
	if q.Get("code_challenge_method") != "S256" ||
		q.Get("redirect_uri") != "https://verify.example.com/signin/"+c.settings.Kind+"/callback" {
		w.t.Errorf("query %v", q)
	}
	if origin := n.AuthorizationOrigin(); !strings.HasPrefix(c.authorize, origin+"/") {
		w.t.Errorf("origin %q", origin)
	}
}
