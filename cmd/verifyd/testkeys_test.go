package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"verifyd/edge/account"
	"verifyd/edge/network"
)

// enrollTest makes a test key of the account.
func (r *rig) enrollTest(t *testing.T) api {
	t.Helper()
	a := must[account.Account](t)(r.store.accounts.EnsureAccount(t.Context(), operator(), "Harbor Guild"))
	secret, _, err := r.store.accounts.CreateKey(t.Context(), operator(), a.ID, account.KeyOptions{Test: true})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(secret, account.TestPrefix) {
		t.Fatalf("the key begins with %q", secret[:8])
	}
	if err := r.knows(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	return api{base: r.base, key: secret}
}

// A test key goes the whole way over the dev network, marked at every step, while live sessions are not offered that network.
func TestTestKeyAllTheWay(t *testing.T) {
	beside(t)
	r := boot(t, func(c *config) {
		c.devForLive = false
		c.networks = append(c.networks, someNetwork)
	})
	test := r.enrollTest(t)
	s := test.init(t, map[string]any{"platform": "discord", "platform_user_id": "sailor_42", "callback_url": r.inbox.callbackURL()})
	b := newBrowser()
	p := must[*page](t)(b.open(t.Context(), s.VerifyURL))
	if !strings.Contains(p.text, "TEST") {
		t.Errorf("the page does not say TEST:\n%s", p.text)
	}
	p = must[*page](t)(b.press(t.Context(), p, "dev"))
	expectTitle(t, must[*page](t)(b.press(t.Context(), p, "sign-in")), http.StatusOK, "You are verified")
	got := <-r.inbox.got
	if got.header.Get("Verifyd-Test") != "true" || !strings.HasPrefix(got.header.Get("Webhook-Id"), "cbtest_") {
		t.Errorf("header = %v", got.header)
	}
	if want := `{"platform_user_id":"sailor_42","guild_id":"","verified":true}`; string(got.body) != want {
		t.Errorf("body = %s, want %s", got.body, want)
	}
	if err := must[*standardwebhooks.Webhook](t)(standardwebhooks.NewWebhook(r.secret)).Verify(got.body, got.header); err != nil {
		t.Error(err)
	}
	test.until(t, s.Session, "delivered")
	var read struct{ Test bool }
	if _, _, body := test.call(t, http.MethodGet, "/sessions/"+s.Session, ""); json.Unmarshal(body, &read) != nil || !read.Test {
		t.Errorf("read back: %s", body)
	}
	if status, _, body := r.api().call(t, http.MethodGet, "/sessions/"+s.Session, ""); status != http.StatusNotFound {
		t.Errorf("for a live key: %d %s", status, body)
	}
	live := must[*page](t)(newBrowser().open(t.Context(), r.begin(t).VerifyURL))
	if strings.Contains(live.text, "Continue with Dev") || strings.Contains(live.text, "TEST") || !strings.Contains(live.text, "Continue with Real Network") {
		t.Errorf("a live session's page:\n%s", live.text)
	}
}

// someNetwork is never reached.
var someNetwork = network.Settings{ID: "real", Name: "Real Network", Kind: network.KindOIDC, Issuer: "https://issuer.example", ClientID: "c", ClientSecret: "s"}
