package signin_test

import (
	"net/http"
	"strings"
	"testing"

	"verifyd/sessions"
)

// The cookie of an attempt is worthless in another browser: by itself, and together with that browser's own.
// Its code is not posted there, nor in the browser that began, once another one has opened the address: that
// one begins again.
func TestFlowCookieInAnotherBrowser(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]setup{
		"plain": {}, "https": {tls: true}, "https and prefix": {tls: true, prefix: "/v"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, s)
			session, token := r.session()
			b := r.browser()
			back := b.back(token, "sailor_42", "sign-in")
			own := b.Client.Jar.Cookies(mustURL(t, back))
			flowCookie := strings.Join(named(own, "verifyd_flow_"), "; ")
			browserCookie := named(own, "verifyd_browser")[0]
			stranger := r.browser()
			stranger.Get(stranger.page(token))
			strangers := named(stranger.Client.Jar.Cookies(mustURL(t, back)), "verifyd_browser")[0]
			before := r.sequences()
			tries := map[string]string{
				"the attempt's alone":      flowCookie,
				"beside the browser's own": flowCookie + "; " + strangers,
				"both, planted before the browser's own": browserCookie + "; " + flowCookie + "; " +
					strangers,
				"both, planted behind the browser's own": strangers + "; " + browserCookie + "; " +
					flowCookie,
				"beside what is no browser's": flowCookie + "; " + browserCookie + "x",
				"beside the browser's, cut to its prefix": flowCookie + "; " +
					browserCookie[:len(browserCookie)-1],
			}
			if name == "https" {
				tries["under the names that a neighbouring host may set"] = strings.ReplaceAll(browserCookie+
					"; "+flowCookie, "__Host-", "__Secure-")
			}
			for what, cookies := range tries {
				thief := r.browser()
				req := thief.Request(http.MethodGet, back, "")
				req.Header.Set("Cookie", cookies)
				if a := thief.Do(req); a.Status != http.StatusBadRequest ||
					!strings.Contains(a.Body, "<h1>We lost track of your sign-in</h1>") {
					t.Errorf("%s: status %d", what, a.Status)
				}
			}
			if after := r.sequences(); after["KV_sessions"] != before["KV_sessions"]+2 { // its two names
				t.Error("returns to other browsers wrote something else than that the code is spent")
			}
			if late := b.To(b.Get(back)); !strings.Contains(late, "note=unfinished") {
				t.Errorf("the browser that began goes on at %s", late)
			}
			r.want(session.ID, sessions.Pending, sessions.NoReason)
			b.signsIn(token, "example", "sailor_42").WantPage(t, http.StatusOK, headingVerified)
			if r.outcomes("other_browser") == 0 {
				t.Errorf("log:\n%s", r.log)
			}
		})
	}
}

// named returns the cookies whose names have a part, as a browser sends them.
func named(cookies []*http.Cookie, part string) (lines []string) {
	for _, c := range cookies {
		if strings.Contains(c.Name, part) {
			lines = append(lines, c.Name+"="+c.Value)
		}
	}
	return lines
}
