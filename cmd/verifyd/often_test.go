package main

import (
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"verifyd/cmd/verifyd/config"
	"verifyd/edge/account"
)

// Attempts are bounded by the client's address as the service decides it, on both round trips: behind a
// trusted proxy by what that one reports, of IPv6 by the network, and never by what a client says of itself.
func TestAttemptsAreBoundedByTheClientsAddress(t *testing.T) {
	t.Parallel()
	r := boot(t, func(c *config.Config) {
		c.SignIns = account.Rate{Count: 3, Per: time.Hour, Burst: 3} // none comes back while the test runs
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})
	press := func(path, forwarded string) *http.Response {
		t.Helper()
		form := url.Values{
			"network": {"default"}, "action": {"continue"}, "session": {strings.Repeat("A", 43)},
		}
		req := must[*http.Request](t)(http.NewRequestWithContext(t.Context(), http.MethodPost, r.Base+path,
			strings.NewReader(form.Encode())))
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Sec-Fetch-Site", "same-origin")
		req.Header.Set("X-Forwarded-For", forwarded)
		response := must[*http.Response](t)(http.DefaultTransport.RoundTrip(req))
		_ = response.Body.Close()
		return response
	}
	for _, path := range []string{"/signin", "/dashboard/login"} {
		for _, row := range []struct {
			used  []string // which share one allowance
			other string   // which has another
		}{
			{[]string{"192.0.2.1", "192.0.2.1", "198.51.100.7, 192.0.2.1"}, "192.0.2.2"},
			{[]string{"2001:db8::1", "2001:db8::2", "2001:db8::ffff:1"}, "2001:db8:0:1::1"},
		} {
			for _, address := range row.used {
				if a := press(path, address); a.StatusCode == http.StatusTooManyRequests {
					t.Errorf("%s from %s: refused", path, address)
				}
			}
			for _, address := range row.used {
				a := press(path, address)
				if a.StatusCode != http.StatusTooManyRequests || a.Header.Get("Retry-After") == "" ||
					!strings.HasPrefix(a.Header.Get("Content-Type"), "text/html") {
					t.Errorf("%s from %s: %d, Retry-After %q", path, address, a.StatusCode,
						a.Header.Get("Retry-After"))
				}
			}
			if a := press(path, row.other); a.StatusCode == http.StatusTooManyRequests {
				t.Errorf("%s from %s: refused for another's presses", path, row.other)
			}
		}
	}
	for _, trip := range []string{"sign_in", "dashboard"} {
		if want := `verifyd_sign_in_refused_total{by="address",step="start",trip="` + trip +
			`"} 6`; !strings.Contains(gathered(t, r), want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
}
