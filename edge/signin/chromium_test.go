package signin_test

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"verifyd/edge/chromiumtest"
	"verifyd/sessions"
)

func (r *rig) page(token sessions.Token) string { return r.base + "/?session=" + token.Reveal() }

// The whole path in Chromium, under the page's own policy: Chromium applies form-action to the redirect that
// leads to the provider, and sends no Sec-Fetch-Site to a plain http address that is not loopback.
func TestInChromium(t *testing.T) {
	for name, host := range map[string]string{
		"loopback": "127.0.0.1", "plain http in a local network": localAddress(t),
	} {
		t.Run(name, func(t *testing.T) {
			if host == "" {
				t.Skip("this machine has no address but loopback")
			}
			tab := chromiumtest.Start(t)
			r := newRig(t, setup{prefix: "/v", host: host})
			session, token := r.session()
			chromiumtest.Do(tab, t,
				chromedp.Navigate(r.page(token)),
				chromiumtest.Click(chromedp.CSS(`button[name="network"]`)),
				chromiumtest.Click(chromedp.CSS(`button[value="sign-in"]`)),
				chromedp.WaitVisible(chromedp.CSS(".sign")),
			)
			wantInTab(tab, t, headingVerified)
			if at := chromiumtest.Run(tab, t, chromedp.Location()); at != r.page(token) {
				t.Errorf("ends at %q", strings.ReplaceAll(at, token.Reveal(), "…"))
			}
			r.want(session.ID, sessions.Verified, sessions.NoReason)
			chromiumtest.Do(tab, t, chromedp.Reload())
			wantInTab(tab, t, headingVerified)
		})
	}
}

func TestDeclineInChromium(t *testing.T) {
	tab := chromiumtest.Start(t)
	r := newRig(t, setup{})
	session, token := r.session()
	chromiumtest.Do(tab, t,
		chromedp.Navigate(r.page(token)),
		chromiumtest.Click(chromedp.CSS(`button[value="decline"]`)),
		chromedp.WaitVisible(chromedp.CSS(".sign")),
	)
	wantInTab(tab, t, headingNotVerified)
	r.want(session.ID, sessions.Failed, sessions.Declined)
}

func wantInTab(tab context.Context, t *testing.T, heading string) {
	t.Helper()
	if got := chromiumtest.Text(tab, t, "h1"); got != heading {
		t.Errorf("heading %q, want %q", got, heading)
	}
}

// localAddress returns an IPv4 address of this machine that is not loopback, or nothing.
func localAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() {
			return n.IP.String()
		}
	}
	return ""
}
