package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/demo"
	"verifyd/edge/network"
	"verifyd/edge/network/netsettings"
	"verifyd/natsconf/natstest"
)

// A network that is known by name needs no file.
func TestOneNetworkByItsKind(t *testing.T) {
	t.Parallel()
	s := config.Settings{
		NetworkSettings: config.NetworkSettings{
			NetworkKind: "discord", NetworkClientID: "c", NetworkClientSecret: "s",
		},
	}
	var f config.Faults
	var c config.Config
	s.NetworkConfig(&c, &f)
	if f.Err() != nil || len(c.Networks) != 1 {
		t.Fatalf("networks %v, %v", c.Networks, f.Err())
	}
	n, err := network.New(c.Networks[0], network.Options{BaseURL: "https://verify.example.com"})
	if err != nil || n.Name() != "Discord" ||
		n.RedirectURI() != "https://verify.example.com/signin/default/callback" {
		t.Errorf("network %q at %q, %v", n.Name(), n.RedirectURI(), err)
	}
}

// A provider that is down stops neither the start nor the sign-ins of the others; operators and users see
// which it is.
func TestStartWithAProviderThatIsDown(t *testing.T) {
	t.Parallel()
	r := boot(t, func(c *config.Config) {
		c.Networks = append(c.Networks, netsettings.Settings{
			ID: "gone", Name: "Gone Network", Kind: netsettings.KindOIDC, Issuer: "http://127.0.0.1:1",
			ClientID: "c", ClientSecret: "s",
		})
	})
	type check struct {
		Name, Reason string
		OK, Advisory bool
	}
	var gone check
	// until it was used for the first time
	for deadline := time.Now().Add(natstest.TestTimeout); gone.Reason == "" && time.Now().Before(deadline); {
		status, _, body := api{base: "http://" + r.Admin}.call(t, http.MethodGet, "/readyz", "")
		var doc struct{ Checks []check }
		if err := json.Unmarshal(body, &doc); err != nil || status != http.StatusOK {
			t.Fatalf("%d %s", status, body)
		}
		for _, c := range doc.Checks {
			if c.Name == "network gone" {
				gone = c
			}
			if c.Name == "network dev" && !c.OK {
				t.Errorf("the other network: %s", c.Reason)
			}
		}
	}
	if gone.OK || !gone.Advisory || !strings.Contains(gone.Reason, "discovery: connect") {
		t.Errorf("check: %+v", gone)
	}
	a := api{base: r.Base, key: r.apiKey}
	status, _, body := a.call(t, http.MethodPost, "/verify/init",
		`{"platform":"p","platform_user_id":"u","callback_url":"https://hooks.example.com/x"}`)
	var begun struct {
		URL string `json:"verify_url"`
	}
	if err := json.Unmarshal(body, &begun); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	p, err := demo.NewBrowser().Open(t.Context(), begun.URL)
	if err != nil || !strings.Contains(p.Text, "Gone Network is not responding right now") ||
		strings.Contains(p.Text, "Dev Network (not real) does not") {
		t.Errorf("page: %q, %v", p.Text, err)
	}
}
