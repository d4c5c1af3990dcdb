package signin_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"verifyd/edge/chromiumtest"
	"verifyd/sessions"
)

var (
	shots = flag.String("shots", "", "folder for screenshots of every page; none when empty")
	axe   = flag.String("axe", "", "axe.min.js, with which every page is checked; not checked when empty")
)

func (r *rig) page(token sessions.Token) string { return r.base + "/?session=" + token.Reveal() }

// The whole way in Chromium, under the page's own policy: Chromium applies form-action to the redirect that leads to the
// provider, and sends no Sec-Fetch-Site to a plain http address that is not loopback.
func TestInChromium(t *testing.T) {
	for name, host := range map[string]string{"loopback": "127.0.0.1", "plain http in a local network": localAddress(t)} {
		t.Run(name, func(t *testing.T) {
			if host == "" {
				t.Skip("this machine has no address but loopback")
			}
			tab := chromiumtest.Start(t)
			r := newRig(t, setup{prefix: "/v", host: host})
			session, token := r.session()
			err := chromedp.Do(tab,
				chromedp.Navigate(r.page(token)),
				chromedp.Click(chromedp.CSS(`button[name="network"]`)),
				chromedp.Click(chromedp.CSS(`button[value="sign-in"]`)),
				chromedp.WaitVisible(chromedp.CSS(".sign")),
			)
			if err != nil {
				t.Fatal(err)
			}
			wantInTab(tab, t, headingVerified)
			if at, err := chromedp.Run(tab, chromedp.Location()); err != nil || at != r.page(token) {
				t.Errorf("ends at %q: %v", strings.ReplaceAll(at, token.Reveal(), "…"), err)
			}
			r.want(session.ID, sessions.Verified, sessions.NoReason)
			if err := chromedp.Do(tab, chromedp.Reload()); err != nil {
				t.Fatal(err)
			}
			wantInTab(tab, t, headingVerified)
		})
	}
}

func TestDeclineInChromium(t *testing.T) {
	tab := chromiumtest.Start(t)
	r := newRig(t, setup{})
	session, token := r.session()
	err := chromedp.Do(tab,
		chromedp.Navigate(r.page(token)),
		chromedp.Click(chromedp.CSS(`button[value="decline"]`)),
		chromedp.WaitVisible(chromedp.CSS(".sign")),
	)
	if err != nil {
		t.Fatal(err)
	}
	wantInTab(tab, t, headingNotVerified)
	r.want(session.ID, sessions.Failed, sessions.Declined)
}

func wantInTab(tab context.Context, t *testing.T, heading string) {
	t.Helper()
	if got, err := chromedp.Run(tab, chromedp.Text(chromedp.CSS("h1"))); err != nil || got != heading {
		t.Errorf("heading %q, %v; want %q", got, err, heading)
	}
}

// Every page at every size and in both colours: nothing sticks out, no rule of axe is broken.
func TestPagesInChromium(t *testing.T) {
	tab := chromiumtest.Start(t)
	for name, address := range everyPage(t) {
		for _, width := range []int64{320, 390, 1100} {
			for _, scheme := range []string{"light", "dark"} {
				look(tab, t, fmt.Sprintf("%s-%d-%s", name, width, scheme), address, width, scheme)
			}
		}
	}
}

func look(tab context.Context, t *testing.T, name, address string, width int64, scheme string) {
	t.Helper()
	colour := chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return err
	})
	if err := chromedp.Do(tab, chromedp.EmulateViewport(width, 720), colour, chromedp.Navigate(address)); err != nil {
		t.Fatal(name, err)
	}
	wide, err := chromedp.Run(tab, chromedp.Evaluate[bool](`document.documentElement.scrollWidth > innerWidth`))
	if err != nil || wide {
		t.Errorf("%s: sticks out: %v, %v", name, wide, err)
	}
	if *shots != "" {
		png, err := chromedp.Run(tab, chromedp.FullScreenshot(100))
		if err = errors.Join(err, os.WriteFile(filepath.Join(*shots, name+".png"), png, 0o600)); err != nil {
			t.Error(err)
		}
	}
	if *axe != "" {
		checkAxe(tab, t, name)
	}
}

func checkAxe(tab context.Context, t *testing.T, name string) {
	t.Helper()
	script, err := os.ReadFile(*axe)
	if err != nil {
		t.Fatal(err)
	}
	found, err := chromedp.Run(tab, chromedp.Evaluate[string](string(script)+`;
		axe.run().then(r => JSON.stringify(r.violations.map(v => [v.id, v.nodes.map(n => n.html)])))`, chromedp.EvalAwaitPromise))
	if err != nil || found != "[]" {
		t.Errorf("%s: axe: %v %s", name, err, found)
	}
}

// everyPage gives an address of each page.
func everyPage(t *testing.T) map[string]string {
	t.Helper()
	r := newRig(t, setup{})
	many := newRig(t, setup{networks: 3})
	b := r.browser()
	hostile := func(q *sessions.Request) {
		q.PlatformUserID, q.Platform, q.GuildID, q.Test = "sailor\u202e24_\n"+strings.Repeat("long", 60), "чат «море»", "שלום 🇩🇪 "+strings.Repeat("e\u0301\u0323", 20), true
	}
	fresh := func(change ...func(*sessions.Request)) string { _, token := r.session(change...); return r.page(token) }
	ended := func(o sessions.Outcome) string {
		session, token := r.session()
		if _, err := r.store.Complete(t.Context(), session.ID, o); err != nil {
			t.Fatal(err)
		}
		return r.page(token)
	}
	_, manyToken := many.session(func(q *sessions.Request) { q.GuildID = "" })
	away := newRig(t, setup{})
	_, awayToken := away.session()
	away.away()
	expired := newRig(t, setup{})
	_, expiredToken := expired.session()
	expired.clock.advance(sessions.Lifetime)
	down := newRig(t, setup{networks: 2})
	_, downToken := down.session()
	down.stopProvider()
	if err := down.nets[0].Discover(t.Context()); err == nil {
		t.Fatal("a provider that is down answers")
	}
	untestable := newRig(t, setup{noTest: true})
	_, untestableToken := untestable.session(ofTestKey)
	ask := fresh()
	pages := map[string]string{
		"ask":         ask,
		"test":        fresh(ofTestKey),
		"untestable":  untestable.page(untestableToken),
		"many":        many.page(manyToken),
		"hostile":     fresh(hostile),
		"trouble":     b.to(b.get(b.back(tokenIn(ask), "x", "error"))),
		"unreachable": ask + "&note=unreachable",
		"checking":    ask + "&note=checking",
		"unconfirmed": ask + "&note=unconfirmed",
		"unsaved":     ask + "&note=unsaved",
		"verified":    ended(sessions.Outcome{State: sessions.Verified, Network: "example"}),
		"declined":    ended(sessions.Outcome{State: sessions.Failed, Reason: sessions.Declined}),
		"refused":     ended(sessions.Outcome{State: sessions.Failed, Reason: sessions.Refused, Network: "example"}),
		"canceled":    ended(sessions.Outcome{State: sessions.Canceled, Reason: sessions.CanceledReason}),
		"expired":     expired.page(expiredToken),
		"unknown":     r.base + "/",
		"lost":        r.base + "/signin/example/callback",
		"unavailable": away.page(awayToken),
		"down":        down.page(downToken),
	}
	for _, rule := range []sessions.Rule{
		sessions.RuleEmailDomains, sessions.RuleAccountAge, sessions.RuleGroups, sessions.RuleDeny, sessions.RuleOneIdentity,
	} {
		pages["refused-"+string(rule)] = ended(sessions.Outcome{State: sessions.Failed, Reason: sessions.Refused, Rule: rule, Network: "example"})
	}
	return pages
}

func tokenIn(page string) sessions.Token {
	_, q, _ := strings.Cut(page, "?")
	values, _ := url.ParseQuery(q)
	return sessions.Token(values.Get("session"))
}

// localAddress gives an IPv4 address of this machine that is not loopback, or nothing.
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
