package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/demo"
	"verifyd/edge/account"
	"verifyd/edge/account/secrets"
	"verifyd/edge/network/netsettings"
)

// enrollTest creates a test key of the account.
func (r *rig) enrollTest(t *testing.T) api {
	t.Helper()
	a := must[account.Account](t)(r.Store.Accounts.EnsureAccount(t.Context(), operator(), "Harbor Guild"))
	secret, _, err := r.Store.Accounts.CreateKey(t.Context(), operator(), a.ID,
		account.KeyOptions{Test: true})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(secret, secrets.TestPrefix) {
		t.Fatalf("the key begins with %q", secret[:8])
	}
	if err := r.Knows(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	return api{base: r.Base, key: secret}
}

// A test key's session uses the dev network, marked as a test throughout, while live sessions are not offered
// that network.
func TestTestKeyAllTheWay(t *testing.T) {
	t.Parallel()
	r := boot(t, func(c *config.Config) {
		c.DevForLive = false
		c.Networks = append(c.Networks, someNetwork)
	})
	test := r.enrollTest(t)
	s := test.init(t, map[string]any{
		"platform": "discord", "platform_user_id": "sailor_42", "callback_url": r.inbox.CallbackURL(),
	})
	b := demo.NewBrowser()
	p := must[*demo.Page](t)(b.Open(t.Context(), s.VerifyURL))
	if !strings.Contains(p.Text, "TEST") {
		t.Errorf("the page does not say TEST:\n%s", p.Text)
	}
	p = must[*demo.Page](t)(b.Press(t.Context(), p, "dev"))
	expectTitle(t, must[*demo.Page](t)(b.Press(t.Context(), p, "sign-in")), http.StatusOK, "You are verified")
	got := <-r.inbox.got
	if got.Header.Get("Verifyd-Test") != "true" ||
		!strings.HasPrefix(got.Header.Get("Webhook-Id"), "cbtest_") {
		t.Errorf("header = %v", got.Header)
	}
	if want := `{"platform_user_id":"sailor_42","guild_id":"","verified":true}`; string(got.Body) != want {
		t.Errorf("body = %s, want %s", got.Body, want)
	}
	if err := must[*standardwebhooks.Webhook](t)(standardwebhooks.NewWebhook(r.secret)).
		Verify(got.Body, got.Header); err != nil {
		t.Error(err)
	}
	test.until(t, s.Session, "delivered")
	var read struct{ Test bool }
	if _, _, body := test.call(t, http.MethodGet, "/sessions/"+s.Session, ""); json.Unmarshal(body,
		&read) != nil || !read.Test {
		t.Errorf("read back: %s", body)
	}
	if status, _, body := r.api().
		call(t, http.MethodGet, "/sessions/"+s.Session, ""); status != http.StatusNotFound {
		t.Errorf("for a live key: %d %s", status, body)
	}
	live := must[*demo.Page](t)(demo.NewBrowser().Open(t.Context(), r.begin(t).VerifyURL))
	if strings.Contains(live.Text, "Continue with Dev") || strings.Contains(live.Text, "TEST") ||
		!strings.Contains(live.Text, "Continue with Real Network") {
		t.Errorf("a live session's page:\n%s", live.Text)
	}
}

// someNetwork is never reached.
var someNetwork = netsettings.Settings{
	ID: "real", Name: "Real Network", Kind: netsettings.KindOIDC, Issuer: "https://issuer.example",
	ClientID:     "c",
	ClientSecret: "s",
}

// A key works from when it was shown, at an edge that has not seen it yet, too.
func TestFreshKeysAreAccepted(t *testing.T) {
	t.Parallel()
	r := boot(t)
	a := must[account.Account](t)(r.Store.Accounts.EnsureAccount(t.Context(), operator(), "Harbor Guild"))
	for range 25 {
		key, _, err := r.Store.Accounts.CreateKey(t.Context(), operator(), a.ID, account.KeyOptions{})
		if err != nil {
			t.Fatal(err)
		}
		fresh := api{base: r.Base, key: key}
		if status, _, body := fresh.call(t, http.MethodGet, "/usage", ""); status != http.StatusOK {
			t.Errorf("a fresh key gets %d %s", status, body)
		}
	}
}
