package netsettings_test

import (
	"reflect"
	"strconv"
	"strings"
	"testing"

	"verifyd/edge/network/netsettings"
)

const plantedSecret = "secret-that-must-not-show"

const goodFile = `
- id: example
  name: Example Network
  kind: oidc
  issuer: https://accounts.example.com
  client_id: 118203948571029384 # a number for YAML, a text for the provider
  client_secret_file: /run/secrets/example
  scopes: [openid, profile]
  subject_claim: sub
  prompt: select_account
  require_subject_match: true
  dashboard: true
- id: plain-2
  name: Plain
  kind: oauth2
  authorization_endpoint: https://plain.example.com/authorize
  token_endpoint: https://plain.example.com/token
  user_info_endpoint: https://plain.example.com/me
  client_id: c
  client_secret: s
  auth_style: params
  subject_claim: data.0.id
`

func TestParseFile(t *testing.T) {
	got, err := netsettings.ParseFile([]byte(goodFile))
	want := []netsettings.Settings{
		{
			ID: "example", Name: "Example Network", Kind: "oidc", Issuer: "https://accounts.example.com",
			ClientID: "118203948571029384", ClientSecretFile: "/run/secrets/example", Scopes: []string{
				"openid", "profile",
			},
			SubjectClaim: "sub", Prompt: "select_account",
			Rules:     netsettings.Rules{RequireSubjectMatch: true},
			Dashboard: true,
		},
		{
			ID: "plain-2", Name: "Plain", Kind: "oauth2",
			AuthorizationEndpoint: "https://plain.example.com/authorize",
			TokenEndpoint:         "https://plain.example.com/token",
			UserInfoEndpoint:      "https://plain.example.com/me",
			ClientID:              "c", ClientSecret: "s", AuthStyle: "params", SubjectClaim: "data.0.id",
		},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("settings = %v, %v", got, err)
	}
}

func TestParseFileRefusesByName(t *testing.T) {
	base := "- {id: a, name: A, kind: oidc, issuer: https://i.example.com, client_id: c, client_secret: s}\n"
	entry := func(old, replacement string) string { return strings.Replace(base, old, replacement, 1) }
	for file, wants := range map[string][]string{
		"":                            {"empty", "- id"},
		"# nothing\n":                 {"empty"},
		"[]":                          {"not a list"},
		"id: a":                       {"not a list", "- id"},
		"- a":                         {"network 1", "not a mapping"},
		"{{":                          {"networks file"},
		base + "---\n" + base:         {"more than one"},
		base + base:                   {`"a"`, "id", "its own"},
		entry("issuer", "isuer"):      {`"a"`, `"isuer" is not a setting`, "client_secret_file", "issuer"},
		entry("kind", "Kind"):         {`"Kind" is not a setting`},
		entry("name: A", "id: b"):     {"id: set twice"},
		entry("name: A", "name: "):    {"name: has no value"},
		entry("name: A", "name: [A]"): {`"a"`, "name: must be a text"},
		entry("name: A", "name: A, scopes: openid"): {"scopes: must be a list"},
		entry("name: A", "name: A, require_subject_match: 7"): {
			"require_subject_match: must be true or false",
		},
		entry("id: a", "id: A"):                        {`"A"`, "id: ", "my-network"},
		entry("id: a", "id: -a"):                       {"id: "},
		entry("id: a", "id: "+strings.Repeat("a", 33)): {"id: "},
		entry("id: a, ", ""):                           {`""`, "id: "},
		entry("name: A", `name: "A\nB"`):               {"name: ", "one line"},
		entry("name: A", `name: " A"`):                 {"name: "},
		entry("kind: oidc", "kind: saml"): {
			"kind: oidc (OpenID Connect), oauth2, or one of discord, github,",
		},
		entry("https://i.example.com", "http://i.example.com"): {"issuer: must be https"},
		entry("https://i.example.com", "i.example.com"): {
			"issuer: not an absolute URL", "https://accounts.example.com",
		},
		entry("https://i.example.com", "https://u:p@i.example"):  {"issuer: holds a user name"},
		entry("https://i.example.com", `"https://i.example/#f"`): {"issuer: has a fragment"},
		entry("https://i.example.com", `"https://i.example/?q"`): {
			"issuer: an issuer has no query",
		},
		entry("issuer: https://i.example.com, ", ""): {"issuer: required"},
		entry("name: A", "name: A, token_endpoint: https://t.example.com"): {
			"token_endpoint: leave them out",
		},
		entry("client_id: c, ", ""):                        {"client_id: "},
		entry(", client_secret: s", ""):                    {"client_secret: set either"},
		entry("name: A", "name: A, client_secret_file: f"): {"client_secret: set either"},
		entry("name: A", "name: A, auth_style: auto"):      {"auth_style: header"},
		entry("name: A", "name: A, scopes: [profile]"):     {"scopes: ", "openid"},
		entry("name: A", "name: A, scopes: [openid profile]"): {
			"scopes: a list with one scope each",
		},
		entry("name: A", "name: A, subject_claim: a..b"):   {"subject_claim: "},
		entry("name: A", `name: A, subject_claim: "/a~2"`): {"subject_claim: "},
		entry("name: A", "name: A, prompt: none"):          {"prompt: none lets nobody"},
		entry("name: A", `name: A, prompt: "Login;"`):      {"prompt: "},
		"- {id: o, name: O, kind: oauth2, client_id: c, client_secret: s}": {
			"authorization_endpoint: required", "token_endpoint: required", "user_info_endpoint: required",
		},
		entry("id: a", "id: A") + entry("kind: oidc", "kind: saml"): {`"A"`, "kind: "}, // all faults at once
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

func TestParseFileErrorsKeepSecrets(t *testing.T) {
	for _, file := range []string{
		"- {id: a, client_secret: [" + plantedSecret + "]}",
		"- {id: a, name: A, kind: oidc, issuer: 'https://x:" + plantedSecret +
			"@i.example', client_id: c, client_secret: " + plantedSecret + "}",
	} {
		if _, err := netsettings.ParseFile([]byte(file)); err == nil ||
			strings.Contains(err.Error(), plantedSecret) {
			t.Errorf("err = %v", err)
		}
	}
}

func TestIsSubject(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"sailor_42": true, "a@example.com": true, "a b": true, "名前": true, "مرحبا": true, "e\u0301": true,
		"👧": true,
		"":  false, strings.Repeat("x", 1024): true, strings.Repeat("x", 1025): false, "a\xff": false,
		"a\x00": false, "a\n": false, "a\x7f": false, "a\u0085": false, // Cc
		"a\u00ad": false, "a\u061c": false, "a\u200b": false, "a\u200d": false, "a\u202e": false, // Cf
		"a\u2066": false, "a\ufeff": false, "a\U000e0041": false,
		"a\u2028": false, "a\u2029": false, // Zl, Zp
	} {
		if got := netsettings.IsSubject(text); got != want {
			t.Errorf("%.20q: %t", text, got)
		}
		file := "- {id: a, name: A, kind: oidc, issuer: https://i.example.com, client_id: c, " +
			"client_secret: s, deny_subjects: [" + strconv.QuoteToASCII(text) + "]}"
		if _, err := netsettings.ParseFile([]byte(file)); (err == nil) != want && text != "a\xff" {
			t.Errorf("%.20q in deny_subjects: %v", text, err)
		}
	}
}

func FuzzParseFile(f *testing.F) {
	f.Add([]byte(goodFile))
	f.Add([]byte("- &a {id: x}\n- *a\n- {<<: *a}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, err := netsettings.ParseFile(b); (err == nil) != (len(got) > 0) {
			t.Fatalf("%d networks, %v", len(got), err)
		}
	})
}
