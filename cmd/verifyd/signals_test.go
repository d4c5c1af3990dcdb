package main

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/demo"
)

// What an integrator says about its users, what a provider says about them, and every secret on the way, is
// planted with markers. None of them is in the log at its finest level, in the metrics with their exemplars,
// or in a span.
func TestSignalsHaveNoSecrets(t *testing.T) {
	t.Parallel()
	seen := collect(t)
	r := boot(t, seen.to(t), func(c *config.Config) { c.TraceReceivers = true })
	planted := map[string]string{
		"platform": "marker-platform", "platform_user_id": "marker-user", "guild_id": "marker-guild",
		"callback path":  "marker-path",
		"callback query": "marker-query", "query of a request": "marker-asked",
		"path of a request": "marker-nowhere",
		"API key":           r.apiKey, "signing secret": r.secret,
	}
	members := map[string]any{
		"platform": planted["platform"], "platform_user_id": planted["platform_user_id"],
		"guild_id":     planted["guild_id"],
		"callback_url": r.inbox.CallbackURL() + "/marker-path?token=marker-query",
	}
	for _, button := range []string{"sign-in", "decline", "error", "token-error"} {
		s := r.api().init(t, members)
		planted["session token of "+button] = s.Session
		b := demo.NewBrowser()
		b.Visited = func(_ string, u *url.URL, _ int) {
			for _, name := range []string{"state", "code", "nonce", "code_challenge"} {
				if v := u.Query().Get(name); v != "" {
					planted[name+" "+v[:4]] = v
				}
			}
		}
		p := must[*demo.Page](t)(b.Open(t.Context(), s.VerifyURL+"&note=marker-asked"))
		p = must[*demo.Page](t)(b.Press(t.Context(), p, "dev"))
		must[*demo.Page](t)(b.Press(t.Context(), p, button))
		if button == "sign-in" || button == "decline" {
			<-r.inbox.got
			r.api().until(t, s.Session, "delivered")
		}
		for _, path := range []string{
			"/sessions/" + s.Session + "?x=marker-asked", "/marker-nowhere?x=marker-asked",
			"/?session=marker-asked",
		} {
			r.api().call(t, http.MethodGet, path, "")
		}
	}
	_, _, metrics := api{base: "http://" + r.Admin}.open(t, "/metrics")
	r.stop()
	signals := map[string]string{
		"log": r.log.String(), "metrics": string(metrics), "spans": seen.raw.String(),
	}
	for name, sign := range map[string]string{
		"log": `"sid"`, "metrics": `trace_id="`, "spans": "deliver callback",
	} {
		if !strings.Contains(signals[name], sign) {
			t.Errorf("the %s does not hold %s: is it looked at?", name, sign)
		}
	}
	if len(planted) < 20 {
		t.Errorf("only %d markers were planted, the walk is broken", len(planted))
	}
	for what, marker := range planted {
		for name, text := range signals {
			if strings.Contains(text, marker) || strings.Contains(text, url.QueryEscape(marker)) {
				t.Errorf("the %s stands in the %s", what, name)
			}
		}
	}
}
