package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"verifyd/edge/network"
	"verifyd/natsconf/natstest"
)

// A network that is known by name needs no file.
func TestOneNetworkByItsKind(t *testing.T) {
	beside(t)
	s := settings{networkSettings: networkSettings{NetworkKind: "discord", NetworkClientID: "c", NetworkClientSecret: "s"}}
	var f faults
	var c config
	s.networkConfig(&c, &f)
	if f.err() != nil || len(c.networks) != 1 {
		t.Fatalf("networks %v, %v", c.networks, f.err())
	}
	n, err := network.New(c.networks[0], network.Options{BaseURL: "https://verify.example.com"})
	if err != nil || n.Name() != "Discord" || n.RedirectURI() != "https://verify.example.com/signin/default/callback" {
		t.Errorf("network %q at %q, %v", n.Name(), n.RedirectURI(), err)
	}
}

// A provider that is down stops neither the start nor the sign-ins of the others; operators and users are told which it is.
func TestStartWithAProviderThatIsDown(t *testing.T) {
	beside(t)
	r := boot(t, func(c *config) {
		c.networks = append(c.networks, network.Settings{
			ID: "gone", Name: "Gone Network", Kind: network.KindOIDC, Issuer: "http://127.0.0.1:1", ClientID: "c", ClientSecret: "s",
		})
	})
	type check struct {
		Name, Reason string
		OK, Advisory bool
	}
	var gone check
	for deadline := time.Now().Add(natstest.LastResort); gone.Reason == "" && time.Now().Before(deadline); { // until it was asked for the first time
		status, _, body := api{base: "http://" + r.admin}.call(t, http.MethodGet, "/readyz", "")
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
	a := api{base: r.base, key: r.apiKey}
	status, _, body := a.call(t, http.MethodPost, "/verify/init", `{"platform":"p","platform_user_id":"u","callback_url":"https://hooks.example.com/x"}`)
	var begun struct {
		URL string `json:"verify_url"`
	}
	if err := json.Unmarshal(body, &begun); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	p, err := newBrowser().open(t.Context(), begun.URL)
	if err != nil || !strings.Contains(p.text, "Gone Network does not answer right now") || strings.Contains(p.text, "Dev Network (not real) does not") {
		t.Errorf("page: %q, %v", p.text, err)
	}
}
