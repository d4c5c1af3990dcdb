package signin_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"verifyd/edge/chromiumtest"
	"verifyd/edge/network"
	"verifyd/sessions"
)

// What users press.
var (
	buttonContinue = chromedp.CSS(`button[name="network"]`)
	buttonStop     = chromedp.CSS(`button[value="stop"]`)
	buttonSignIn   = chromedp.CSS(`button[value="sign-in"]`)
	signOfTheEnd   = chromedp.CSS(".sign")
)

func walk(tab context.Context, t *testing.T, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(tab, steps...); err != nil {
		t.Fatal(err)
	}
}

// scripts lets the tab run scripts or not.
func scripts(on bool) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		p := emulation.SetScriptExecutionDisabledParams{Value: !on}
		_, err := cdp.Call(ctx, target, emulation.SetScriptExecutionDisabled, p)
		return err
	})
}

// The whole way on a phone and a desk, with scripts and without, in a language that was chosen on the page.
func TestWholeWayInChromium(t *testing.T) {
	tab := chromiumtest.Start(t)
	for name, tc := range map[string]struct {
		width, height int64
		scripts       bool
	}{
		"phone":                  {390, 844, true},
		"phone without scripts":  {390, 844, false},
		"desk":                   {1280, 800, true},
		"narrow without scripts": {320, 568, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{prefix: "/v"})
			session, token := r.session()
			walk(tab, t, scripts(tc.scripts), chromedp.EmulateViewport(tc.width, tc.height), chromedp.Navigate(r.page(token)),
				chromedp.Click(chromedp.CSS("nav summary")), chromedp.Click(chromedp.CSS(`li[lang="de"] a`)),
				chromedp.WaitVisible(chromedp.CSS(`html[lang="de"]`)), chromedp.Click(buttonContinue), chromedp.Click(buttonSignIn), chromedp.WaitVisible(signOfTheEnd))
			wantInTab(tab, t, "Sie sind bestätigt")
			r.want(session.ID, sessions.Verified, sessions.NoReason)
		})
	}
}

// Two tabs of one browser are one browser; Back, forward and reload lead to no error and change nothing that stands.
func TestTabsAndBackInChromium(t *testing.T) {
	tab := chromiumtest.Start(t)
	r := newRig(t, setup{})
	session, token := r.session()
	second, end := chromedp.NewContext(tab)
	t.Cleanup(end)
	walk(tab, t, chromedp.Navigate(r.page(token)), chromedp.Click(buttonContinue), chromedp.WaitVisible(buttonSignIn))
	walk(second, t, chromedp.Navigate(r.page(token)), chromedp.WaitVisible(buttonStop), chromedp.Click(buttonContinue), chromedp.WaitVisible(buttonSignIn))
	walk(tab, t, chromedp.NavigateBack(), chromedp.WaitVisible(buttonContinue), chromedp.Reload(), chromedp.WaitVisible(buttonStop))
	walk(tab, t, chromedp.Click(buttonContinue), chromedp.Click(buttonSignIn), chromedp.WaitVisible(signOfTheEnd))
	wantInTab(tab, t, headingVerified)
	walk(tab, t, chromedp.Reload())
	wantInTab(tab, t, headingVerified)
	walk(second, t, chromedp.Click(buttonSignIn), chromedp.WaitVisible(signOfTheEnd))
	wantInTab(second, t, headingVerified)
	walk(second, t, chromedp.NavigateBack(), chromedp.WaitVisible(buttonSignIn), chromedp.Click(buttonSignIn), chromedp.WaitVisible(signOfTheEnd))
	wantInTab(second, t, headingVerified)
	r.want(session.ID, sessions.Verified, sessions.NoReason)
}

// Two browsers, of which the second waits until the first stops.
func TestTwoBrowsersInChromium(t *testing.T) {
	first, second := chromiumtest.Start(t), chromiumtest.Start(t)
	r := newRig(t, setup{})
	session, token := r.session()
	walk(first, t, chromedp.Navigate(r.page(token)), chromedp.Click(buttonContinue), chromedp.WaitVisible(buttonSignIn))
	walk(second, t, chromedp.Navigate(r.page(token)), chromedp.WaitVisible(signOfTheEnd))
	wantInTab(second, t, headingElsewhere)
	walk(first, t, chromedp.Navigate(r.page(token)), chromedp.WaitVisible(buttonStop))
	walk(first, t, chromedp.Click(buttonStop), chromedp.WaitNotPresent(buttonStop))
	walk(second, t, chromedp.Click(chromedp.CSS("a.button")), chromedp.Click(buttonContinue), chromedp.Click(buttonSignIn), chromedp.WaitVisible(signOfTheEnd))
	wantInTab(second, t, headingVerified)
	walk(first, t, chromedp.Reload(), chromedp.WaitVisible(signOfTheEnd))
	wantInTab(first, t, headingVerified)
	r.want(session.ID, sessions.Verified, sessions.NoReason)
}

// slowProvider is an OAuth 2 provider that signs everybody in at once and keeps the code's exchange waiting until it is let go. asked
// tells of each exchange.
type slowProvider struct {
	*httptest.Server

	asked, let chan struct{}
}

func newSlowProvider(t *testing.T) *slowProvider {
	t.Helper()
	p := &slowProvider{asked: make(chan struct{}, 10), let: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /authorize", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		http.Redirect(w, r, q.Get("redirect_uri")+"?"+url.Values{"code": {"c"}, "state": {q.Get("state")}}.Encode(), http.StatusSeeOther)
	})
	answer := func(w http.ResponseWriter, v map[string]string) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		p.asked <- struct{}{}
		select {
		case <-p.let:
			answer(w, map[string]string{"access_token": "a", "token_type": "Bearer"})
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("GET /me", func(w http.ResponseWriter, _ *http.Request) { answer(w, map[string]string{"id": "sailor_42"}) })
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

func (p *slowProvider) network(t *testing.T, base string) *network.Network {
	t.Helper()
	n, err := network.New(network.Settings{
		ID: "slow", Name: "Slow Network", Kind: network.KindOAuth2, ClientID: "verifyd", ClientSecret: "secret", SubjectClaim: "id",
		AuthorizationEndpoint: p.URL + "/authorize", TokenEndpoint: p.URL + "/token", UserInfoEndpoint: p.URL + "/me",
	}, network.Options{BaseURL: base})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// While the provider takes its time, another tab and an impatient reload are told so, the code is exchanged once, and the end comes.
func TestSlowProviderInChromium(t *testing.T) {
	tab := chromiumtest.Start(t)
	r := newRig(t, setup{})
	p := newSlowProvider(t)
	r.nets = append(r.nets[:0], p.network(t, r.base))
	r.mount()
	session, token := r.session()
	second, end := chromedp.NewContext(tab)
	t.Cleanup(end)
	walk(tab, t, chromedp.Navigate(r.page(token)))
	walk(tab, t, chromedp.Click(buttonContinue))
	<-p.asked
	walk(second, t, chromedp.Navigate(r.page(token)), chromedp.WaitVisible(buttonStop))
	wantInTab(second, t, headingAsk)
	close(p.let)
	walk(tab, t, chromedp.WaitVisible(signOfTheEnd))
	wantInTab(tab, t, headingVerified)
	walk(second, t, chromedp.Reload(), chromedp.WaitVisible(signOfTheEnd))
	wantInTab(second, t, headingVerified)
	r.want(session.ID, sessions.Verified, sessions.NoReason)
	if len(p.asked) != 0 {
		t.Error("the code was exchanged twice")
	}
}

// A provider that is down costs a notice above the button, in a browser too.
func TestProviderDownInChromium(t *testing.T) {
	tab := chromiumtest.Start(t)
	r := newRig(t, setup{})
	session, token := r.session()
	walk(tab, t, chromedp.Navigate(r.page(token)), chromedp.Click(buttonContinue), chromedp.WaitVisible(buttonSignIn))
	r.stopProvider()
	r.restartNetworks()
	walk(tab, t, chromedp.Navigate(r.page(token)), chromedp.WaitVisible(buttonStop), chromedp.Click(buttonContinue),
		chromedp.WaitNotPresent(buttonStop), chromedp.WaitVisible(chromedp.CSS(`.note[role="status"]`)))
	said, err := chromedp.Run(tab, chromedp.Text(chromedp.CSS(".note")))
	if err != nil || !strings.Contains(said, "did not answer") {
		t.Errorf("the notice %q, %v", said, err)
	}
	r.want(session.ID, sessions.Pending, sessions.NoReason)
}

// restartNetworks makes the networks anew, so that they know nothing of their provider.
func (r *rig) restartNetworks() {
	r.t.Helper()
	r.startNetworks()
	r.mount()
}
