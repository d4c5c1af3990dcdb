package netsettings_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"verifyd/edge/network"
	"verifyd/edge/network/netsettings"
)

func TestPresetsNeedNoMoreThanAClient(t *testing.T) {
	for _, kind := range []string{
		"discord", "github", "gitlab", "google", "microsoft", "roblox", "twitch", "vatsim",
	} {
		if _, err := netsettings.ParseFile(
			[]byte("- {kind: " + kind + ", client_id: c, client_secret: s}")); err != nil {
			t.Error(err)
		}
	}
	if _, err := netsettings.ParseFile([]byte("- kind: steam")); err != nil {
		t.Error(err)
	}
}

func TestParseFileReadsRules(t *testing.T) {
	got, err := netsettings.ParseFile([]byte(`
- kind: google
  client_id: c
  client_secret: s
  email_domains: [example.com, example.org]
  require_groups: [example.com]
  deny_subjects: [118203948571029384]
- kind: roblox
  client_id: c
  client_secret: s
  min_account_age: 30d
  allow_subjects: ["1", "2"]
  one_identity_per: guild
  one_identity_for: 72h
- id: own
  name: Own
  kind: oidc
  issuer: https://accounts.example.com
  client_id: c
  client_secret: s
  created_claim: /account/born
  groups_claim: realm_access.roles
  min_account_age: 90m
  require_groups: [crew]
`))
	want := []netsettings.Rules{
		{EmailDomains: []string{"example.com", "example.org"}, RequireGroups: []string{"example.com"},
			DenySubjects: []string{"118203948571029384"}},
		{MinAccountAge: netsettings.Span(30 * 24 * time.Hour), AllowSubjects: []string{"1", "2"},
			OneIdentityPer: "guild", OneIdentityFor: netsettings.Span(72 * time.Hour)},
		{MinAccountAge: netsettings.Span(90 * time.Minute), RequireGroups: []string{"crew"}},
	}
	if err != nil || len(got) != len(want) {
		t.Fatal(got, err)
	}
	for i, w := range want {
		if !reflect.DeepEqual(got[i].Rules, w) {
			t.Errorf("rules %d: %+v, want %+v", i, got[i].Rules, w)
		}
	}
	n, err := network.New(netsettings.Settings{Kind: "steam",
		Rules: netsettings.Rules{OneIdentityPer: "platform"}},
		network.Options{BaseURL: "https://v.example"})
	if err != nil || n.Rules().OneIdentityFor.String() != "365d" {
		t.Errorf("an identity is remembered for %v, %v; want a year by default", n.Rules().OneIdentityFor,
			err)
	}
}

func TestParseFileRefusesPresetsAndRulesByName(t *testing.T) {
	discord := "- {kind: discord, client_id: c, client_secret: s, "
	for file, wants := range map[string][]string{
		discord + "token_endpoint: https://evil.example/token}": {
			`network "discord": token_endpoint: leave it out`, "kind discord knows its own",
		},
		discord + "authorization_endpoint: https://evil.example}": {
			"authorization_endpoint: leave it out",
		},
		discord + "user_info_endpoint: https://evil.example}": {
			"user_info_endpoint: leave it out",
		},
		discord + "issuer: https://evil.example}": {
			"issuer: leave it out",
		},
		discord + "subject_claim: username}": {
			"subject_claim: leave it out",
		},
		discord + "auth_style: params}": {
			"auth_style: leave it out",
		},
		discord + "created_claim: x}": {
			"created_claim: leave it out",
		},
		discord + "x: 1}\n" + discord + "scopes: [identify]}": {
			`"x" is not a setting`, "min_account_age", "one_identity_per",
		},
		discord + "scopes: [identify]}\n" + discord + "prompt: consent}": {
			"another network in the list has the id discord",
		},
		"- {kind: steam, client_id: c}": {
			"client_id, client_secret: leave them out", "steam knows no clients",
		},
		"- {kind: gitlab, issuer: 'http://gitlab.example', client_id: c, client_secret: s}": {
			"issuer: must be https",
		},

		discord + "email_domains: ['@example.com']}": {
			"email_domains: a list with one domain each",
		},
		discord + "email_domains: example.com}": {
			"email_domains: must be a list",
		},
		discord + "email_domains: []}": {
			"email_domains: the list is empty",
		},
		discord + "min_account_age: 30}": {
			"min_account_age: must be a span of time", "30d",
		},
		discord + "min_account_age: -1d}": {
			"min_account_age: must be a span of time",
		},
		discord + "min_account_age: 40000d}": {
			"min_account_age: must be a span of time",
		},
		discord + "allow_subjects: ['']}": {
			"allow_subjects: a list with one entry each",
		},
		discord + "deny_subjects: [' 1']}": {
			"deny_subjects: a list with one entry each",
		},
		discord + "one_identity_per: server}": {
			"one_identity_per: guild (platform and guild_id) or platform",
		},
		discord + "one_identity_for: 3d}": {
			"one_identity_for: set one_identity_per too",
		},
		discord + "one_identity_per: guild, one_identity_for: 5m}": {
			"one_identity_for: at least 1h",
		},
		discord + "groups_claim: a..b}": {
			"groups_claim: a name, a dotted path",
		},
		"- {kind: microsoft, client_id: c, client_secret: s, email_domains: [example.com]}": {
			"email_domains: kind microsoft reports no verified e-mail address",
		},
		"- {kind: vatsim, client_id: c, client_secret: s, email_domains: [example.com]}": {
			"email_domains: kind vatsim",
		},
		"- {kind: google, client_id: c, client_secret: s, min_account_age: 1d}": {
			"min_account_age: kind google does not report how old an account is; leave it out",
		},
		"- {kind: twitch, client_id: c, client_secret: s, require_groups: [a]}": {
			"require_groups: kind twitch reports no groups",
		},
		"- {kind: steam, require_groups: [a], min_account_age: 1d}": {
			"require_groups: kind steam", "min_account_age: kind steam",
		},
		"- {id: a, name: A, kind: oidc, issuer: 'https://i.example.com', client_id: c, client_secret: " +
			"s, min_account_age: 1d}": {"min_account_age: kind oidc", "set created_claim"},
	} {
		got, err := netsettings.ParseFile([]byte(file))
		if err == nil || got != nil {
			t.Errorf("%q: accepted", file)
			continue
		}
		for _, want := range wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q:\n\t%v\n\tdoes not say %q", file, err, want)
			}
		}
	}
}
