package network_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"verifyd/edge/network"
)

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
	got, err := network.ParseFile([]byte(goodFile))
	want := []network.Settings{
		{
			ID: "example", Name: "Example Network", Kind: "oidc", Issuer: "https://accounts.example.com",
			ClientID: "118203948571029384", ClientSecretFile: "/run/secrets/example", Scopes: []string{
				"openid", "profile",
			},
			SubjectClaim: "sub", Prompt: "select_account", Rules: network.Rules{RequireSubjectMatch: true},
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
		got, err := network.ParseFile([]byte(file))
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
		if _, err := network.ParseFile([]byte(file)); err == nil ||
			strings.Contains(err.Error(), plantedSecret) {
			t.Errorf("err = %v", err)
		}
	}
}

func FuzzParseFile(f *testing.F) {
	f.Add([]byte(goodFile))
	f.Add([]byte("- &a {id: x}\n- *a\n- {<<: *a}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, err := network.ParseFile(b); (err == nil) != (len(got) > 0) {
			t.Fatalf("%d networks, %v", len(got), err)
		}
	})
}

func TestNewReadsTheSecretFile(t *testing.T) {
	s := newStandIn(t)
	path := filepath.Join(t.TempDir(), "secret")
	fromFile := func(set *network.Settings, _ *network.Options) {
		set.ClientSecret, set.ClientSecretFile = "", path
	}
	if err := os.WriteFile(path, []byte(plantedSecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.network(t, fromFile).Redeem(t.Context(), s.attempt, s.good()); err != nil {
		t.Fatal(err)
	}
	if _, secret, _ := s.lastRequest.Load().BasicAuth(); secret != plantedSecret {
		t.Fatal("the provider got another secret than the file's")
	}
	settings := network.Settings{
		ID: "a", Name: "A", Kind: "oidc", Issuer: s.URL, ClientID: "c", ClientSecretFile: path,
	}
	for content, want := range map[string]string{
		strings.Repeat(" ", 3): "1 to 4096 bytes", strings.Repeat("x", 4097): "1 to 4096 bytes",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := network.New(settings, network.Options{BaseURL: "http://localhost:8080"})
		if err == nil || !strings.Contains(err.Error(), `network "a": client_secret_file: `) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("err = %v", err)
		}
	}
	settings.ClientSecretFile = path + ".missing"
	if _, err := network.New(settings,
		network.Options{BaseURL: "http://localhost:8080"}); !os.IsNotExist(unwrapAll(err)) {
		t.Errorf("err = %v, want one that says the file is missing", err)
	}
}

func unwrapAll(err error) error {
	for {
		inner, ok := err.(interface{ Unwrap() error })
		if !ok {
			return err
		}
		err = inner.Unwrap()
	}
}

func TestNewRefusesBadBaseURL(t *testing.T) {
	settings := network.Settings{
		ID: "a", Name: "A", Kind: "oidc", Issuer: "https://i.example", ClientID: "c", ClientSecret: "s",
	}
	for _, base := range []string{
		"", "verify.example.com", "ftp://verify.example.com", "https://u@verify.example.com",
		"https://v.example/?q", "https://v.example/#f",
	} {
		if _, err := network.New(settings, network.Options{BaseURL: base}); err == nil ||
			!strings.Contains(err.Error(), "https://verify.example.com") {
			t.Errorf("base URL %q: err = %v", base, err)
		}
	}
	for base, want := range map[string]string{
		"https://verify.example.com":  "https://verify.example.com/signin/a/callback",
		"https://example.com/verify/": "https://example.com/verify/signin/a/callback",
		"http://localhost:8080":       "http://localhost:8080/signin/a/callback",
	} {
		n, err := network.New(settings, network.Options{BaseURL: base})
		if err != nil || n.RedirectURI() != want {
			t.Errorf("base URL %q: %v, %v", base, n, err)
		}
	}
	n, err := network.New(settings, network.Options{
		BaseURL: "https://example.com/verify", ReturnPath: "/dashboard/login/{network}/callback",
	})
	if want := "https://example.com/verify/dashboard/login/a/callback"; err != nil ||
		n.RedirectURI() != want {
		t.Errorf("another place of return: %v, %v; want %q", n.RedirectURI(), err, want)
	}
}
