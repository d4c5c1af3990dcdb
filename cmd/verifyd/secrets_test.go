package main

import (
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"verifyd/cmd/verifyd/demo"
	"verifyd/edge/account"
	"verifyd/edge/account/signing"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
)

// Every secret of a whole sign-in is searched for in everything the service leaves behind: its log at the
// finest level, its metrics, and each file of its data directory, after kill -9.
func TestSecretsAreNowhereToBeRead(t *testing.T) {
	t.Parallel()
	c := newChild(t)
	c.start(t)
	const marker = "planted-in-the-callback-query"
	key := c.makeKey(t, "Harbor Guild")
	secret := must[string](t)(c.command(t, "account", "secret", "Harbor Guild"))
	a := api{base: c.base(), key: key}
	a.knownSoon(t)

	seen := map[string]string{
		"API key": key, "API key without its prefix": strings.TrimPrefix(key, "vfy_")[:32],
		"signing secret": strings.TrimPrefix(secret, "whsec_"), "callback query": marker,
		"client secret": c.issuer.Settings().ClientSecret,
	}
	if !natstest.OnCluster() { // whose master key is elsewhere
		master := must[secretbox.Key](t)(secretbox.Load(filepath.Join(c.dir, "store", "secret.key")))
		keys := signing.New(master)
		acc := account.Account{ID: account.IDOf("Harbor Guild"), Secrets: []account.Secret{{Value: secret}}}
		seen["private key"] = strings.TrimPrefix(keys.Secrets(acc, time.Now())[1], signing.PrivatePrefix)
		if _, _, answer := a.call(t, http.MethodGet, "/signing-keys", ""); !strings.Contains(string(answer),
			keys.Public(acc, time.Now())[0].Value) {
			t.Fatalf("the private key is not the one that signs: %s", answer)
		}
	}
	// One session goes through, one is refused with its secrets in the body, one stays open.
	for _, members := range []map[string]any{
		{"platform": "p", "platform_user_id": "u",
			"callback_url": c.inbox.CallbackURL() + "?token=" + marker},
		{"platform": "p", "platform_user_id": "u", "callback_url": "https://nobody.invalid/?token=" + marker},
	} {
		s := a.init(t, members)
		seen["session token of "+members["callback_url"].(string)[8:20]] = s.Session
		b := demo.NewBrowser()
		b.Visited = func(_ string, u *url.URL, _ int) {
			for _, name := range []string{"state", "code", "nonce", "code_challenge"} {
				if v := u.Query().Get(name); v != "" {
					seen[name+" "+v[:4]] = v
				}
			}
		}
		p := must[*demo.Page](t)(b.Press(t.Context(), must[*demo.Page](t)(b.Open(t.Context(), s.VerifyURL)),
			"default"))
		expectTitle(t, must[*demo.Page](t)(b.Press(t.Context(), p, "sign-in")), http.StatusOK,
			"You are verified")
		for _, cookie := range b.Client.Jar.Cookies(&url.URL{
			Scheme: "http", Host: c.listen, Path: "/signin",
		}) {
			seen["flow cookie "+cookie.Name] = cookie.Value
		}
	}
	<-c.inbox.got
	a.call(t, http.MethodPost, "/verify/init",
		`{"platform":"p","callback_url":"http://u:`+marker+`@x/?`+marker+`"}`)
	a.call(t, http.MethodGet, "/sessions/"+key, "")
	a.call(t, http.MethodGet, "/nowhere/"+marker+"?"+marker, "")
	if len(seen) < 12 {
		t.Fatalf("only %d secrets were seen, the walk is broken: %v", len(seen), seen)
	}
	_, _, metrics := api{base: "http://" + c.admin}.call(t, http.MethodGet, "/metrics", "")
	c.kill()

	left := c.left(t, map[string]string{"log": c.log.String(), "metrics": string(metrics)})
	if !strings.Contains(left["log"], `"sid"`) || !strings.Contains(left["metrics"], "verifyd_") {
		t.Fatalf("nothing was left behind to look at: %d places", len(left))
	}
	for what, value := range seen {
		for where, text := range left {
			if strings.Contains(text, value) || strings.Contains(text, url.QueryEscape(value)) {
				t.Errorf("%s stands in %s", what, where)
			}
		}
	}
}
