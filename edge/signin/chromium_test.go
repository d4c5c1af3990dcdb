package signin_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"verifyd/edge/chromiumtest"
	"verifyd/sessions"
	"verifyd/sessions/proof"
)

func (r *rig) page(token sessions.Token) string { return r.base + "/?session=" + token.Reveal() }

// The whole way in Chromium, under the page's own policy: Chromium applies form-action to the redirect that
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
	if got := chromiumtest.Run(tab, t, chromedp.Text(chromedp.CSS("h1"))); got != heading {
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

// The attack that levels are for, in two real browsers: the attacker has the victim open the link of a
// session for the attacker's account. With a link it works, and the page has warned; a code and the platform
// account keep it off.
func TestForwardingInTwoBrowsers(t *testing.T) {
	t.Parallel()
	only := true
	r := newRig(t, setup{platform: &only})
	attacker, victim := chromiumtest.Start(t), chromiumtest.Start(t)
	text := func(tab context.Context, of chromedp.CSS) string {
		return chromiumtest.Run(tab, t, chromedp.Text(of))
	}
	open := func(tab context.Context, token sessions.Token) {
		chromiumtest.Do(tab, t, chromedp.Navigate(r.page(token)))
	}
	signIn := func(tab context.Context, subject string) {
		chromiumtest.Do(tab, t,
			chromiumtest.Click(chromedp.CSS(`button[name="network"]`)),
			chromedp.SetValue(chromedp.CSS("#subject"), subject),
			chromiumtest.Click(chromedp.CSS(`button[value="sign-in"]`)),
			chromedp.WaitVisible(chromedp.CSS("h1")),
		)
	}

	s, token := r.session()
	open(victim, token)
	if warning := text(victim, ".note.caution"); !strings.Contains(warning, "would verify their account") {
		t.Errorf("the page does not warn: %q", warning)
	}
	signIn(victim, "victim")
	wantInTab(victim, t, headingVerified)
	r.want(s.ID, sessions.Verified, sessions.NoReason)

	s, token = r.session(asking(proof.Code))
	open(attacker, token)
	open(victim, token)
	signIn(victim, "victim")
	wantInTab(victim, t, headingConfirm)
	code, ok := proof.ParseCode(text(victim, "kbd"))
	if !ok {
		t.Errorf("no code on the page: %q", code)
	}
	open(attacker, token)
	wantInTab(attacker, t, headingSignedIn)
	if _, err := r.store.Confirm(t.Context(), s, "the victim's account", code); err == nil {
		t.Error("the code is taken from the victim's account")
	}
	r.want(s.ID, sessions.Pending, sessions.NoReason)

	s, token = r.session(asking(proof.Account))
	open(attacker, token)
	signIn(attacker, s.PlatformUserID)
	if note := text(attacker, ".note.caution"); !strings.Contains(note, "One sign-in is left") {
		t.Errorf("the attacker's account is not proven: %q", note)
	}
	r.clock.advance(3 * time.Minute) // the attacker's browser keeps nobody out any more
	open(victim, token)
	signIn(victim, "victim")
	wantInTab(victim, t, headingNotVerified)
	r.want(s.ID, sessions.Failed, sessions.Refused)
}
