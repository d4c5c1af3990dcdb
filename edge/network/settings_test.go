package network_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"verifyd/edge/network"
	"verifyd/edge/network/netsettings"
)

func TestNewReadsTheSecretFile(t *testing.T) {
	s := newStandIn(t)
	path := filepath.Join(t.TempDir(), "secret")
	fromFile := func(set *netsettings.Settings, _ *network.Options) {
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
	settings := netsettings.Settings{
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
	settings := netsettings.Settings{
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
