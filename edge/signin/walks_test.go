package signin_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"verifyd/edge/chromiumtest"
	"verifyd/edge/network"
	"verifyd/edge/network/netsettings"
	"verifyd/sessions"
	"verifyd/sessions/proof"
)

// What users press.
var (
	buttonContinue = chromedp.CSS(`button[name="network"]`)
	buttonStop     = chromedp.CSS(`button[value="stop"]`)
	buttonSignIn   = chromedp.CSS(`button[value="sign-in"]`)
	signOfTheEnd   = chromedp.CSS(".sign")
)

// scripts lets the tab run scripts or not.
func scripts(on bool) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		p := emulation.SetScriptExecutionDisabledParams{Value: !on}
		_, err := cdp.Call(ctx, target, emulation.SetScriptExecutionDisabled, p)
		return err
	})
}

// pressBack presses Back and returns the new tab. Chromium may restore the page as it was left, without a
// request: nothing loads that could be waited for, and chromedp's state of the tab is invalid, so that it
// attaches again.
func pressBack(tab context.Context, t *testing.T) context.Context {
	t.Helper()
	listening, done := context.WithCancel(tab)
	defer done()
	there := make(chan struct{})
	arrive := sync.OnceFunc(func() { close(there) })
	err := chromedp.Listen(listening, func(event any) {
		if e, ok := event.(*page.EventFrameNavigated); ok && e.Frame.ParentID == "" {
			arrive()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	chromiumtest.Do(tab, t, chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		history, err := cdp.Call(ctx, target, page.GetNavigationHistory, cdp.Empty{})
		if err != nil {
			return err
		}
		if history.CurrentIndex < 1 {
			return errors.New("there is no page to go back to")
		}
		before := history.Entries[history.CurrentIndex-1]
		_, err = cdp.Call(ctx, target, page.NavigateToHistoryEntry, page.NavigateToHistoryEntryParams{
			EntryID: before.ID,
		})
		return err
	}))
	select {
	case <-there:
	case <-tab.Done():
		t.Fatal("Back leads nowhere")
	}
	again, end := chromedp.NewContext(tab, chromedp.WithTargetID(chromedp.FromContext(tab).Target.TargetID))
	t.Cleanup(end)
	return again
}

// The whole path on a phone and a desktop, with scripts and without, in a language that was chosen on the
// page.
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
			chromiumtest.Do(tab, t, scripts(tc.scripts), chromedp.EmulateViewport(tc.width, tc.height),
				chromedp.Navigate(r.page(token)),
				chromiumtest.Click(chromedp.CSS("nav a")),
				chromiumtest.Click(chromedp.CSS(`li a[lang="de"]`)),
				chromedp.WaitVisible(chromedp.CSS(`html[lang="de"]`)), chromiumtest.Click(buttonContinue),
				chromiumtest.Click(buttonSignIn), chromedp.WaitVisible(signOfTheEnd))
			wantInTab(tab, t, "Sie sind bestätigt")
			r.want(session.ID, sessions.Verified, sessions.NoReason)
		})
	}
}

// The code on a phone, without scripts: it is large, is still shown after a visit to another app, and is read
// out character by character.
func TestCodeInChromium(t *testing.T) {
	t.Parallel()
	tab := chromiumtest.Start(t)
	r := newRig(t, setup{})
	session, token := r.session(asking(proof.Code))
	chromiumtest.Do(tab, t, scripts(false), chromedp.EmulateViewport(320, 568),
		chromedp.Navigate(r.page(token)), chromiumtest.Click(buttonContinue),
		chromiumtest.Click(buttonSignIn), chromedp.WaitVisible(chromedp.CSS("kbd")))
	wantInTab(tab, t, headingConfirm)
	shown := chromiumtest.Text(tab, t, "kbd")
	read := chromiumtest.Run(tab, t, chromedp.Evaluate[string](`document.querySelector("kbd").ariaLabel`))
	if read != strings.Join(strings.Split(strings.ReplaceAll(shown, " ", ""), ""), " ") {
		t.Errorf("it shows %q, and is read out as %q", shown, read)
	}
	const pixels = `parseFloat(getComputedStyle(document.querySelector("kbd")).fontSize)`
	if size := chromiumtest.Run(tab, t, chromedp.Evaluate[float64](pixels)); size < 32 {
		t.Errorf("the code is %.0f pixels high", size)
	}
	if out := chromiumtest.Overflow(tab, t); out != "" {
		t.Errorf("sticks out or is cut off:\n%s", out)
	}
	chromiumtest.Do(tab, t, chromedp.Navigate("about:blank"))
	tab = pressBack(tab, t)
	for _, again := range []chromedp.Action[chromedp.Void]{
		chromedp.WaitVisible(chromedp.CSS("kbd")), chromedp.Reload(), chromiumtest.Click("a.button"),
	} {
		chromiumtest.Do(tab, t, again, chromedp.WaitVisible(chromedp.CSS("kbd")))
		if got := chromiumtest.Text(tab, t, "kbd"); got != shown {
			t.Errorf("the code was %q and is %q", shown, got)
		}
	}
	code, _ := proof.ParseCode(shown)
	if _, err := r.store.Confirm(t.Context(), session, session.PlatformUserID, code); err != nil {
		t.Error(err)
	}
	chromiumtest.Do(tab, t, chromiumtest.Click("a.button"), chromedp.WaitVisible(signOfTheEnd))
	wantInTab(tab, t, headingVerified)
}

// Two tabs of one browser are one browser; Back, forward and reload cause no error and change nothing that is
// stored.
func TestTabsAndBackInChromium(t *testing.T) {
	tab := chromiumtest.Start(t)
	r := newRig(t, setup{})
	session, token := r.session()
	second, end := chromedp.NewContext(tab)
	t.Cleanup(end)
	chromiumtest.Do(tab, t, chromedp.Navigate(r.page(token)), chromiumtest.Click(buttonContinue),
		chromedp.WaitVisible(buttonSignIn))
	chromiumtest.Do(second, t, chromedp.Navigate(r.page(token)), chromedp.WaitVisible(buttonStop),
		chromiumtest.Click(buttonContinue), chromedp.WaitVisible(buttonSignIn))
	tab = pressBack(tab, t)
	chromiumtest.Do(tab, t, chromedp.WaitVisible(buttonContinue), chromedp.Reload(),
		chromedp.WaitVisible(buttonStop))
	chromiumtest.Do(tab, t, chromiumtest.Click(buttonContinue), chromiumtest.Click(buttonSignIn),
		chromedp.WaitVisible(signOfTheEnd))
	wantInTab(tab, t, headingVerified)
	chromiumtest.Do(tab, t, chromedp.Reload())
	wantInTab(tab, t, headingVerified)
	chromiumtest.Do(second, t, chromiumtest.Click(buttonSignIn), chromedp.WaitVisible(signOfTheEnd))
	wantInTab(second, t, headingVerified)
	second = pressBack(second, t)
	chromiumtest.Do(second, t, chromiumtest.Click(buttonSignIn), chromedp.WaitVisible(signOfTheEnd))
	wantInTab(second, t, headingVerified)
	r.want(session.ID, sessions.Verified, sessions.NoReason)
}

// Two browsers, of which the second waits until the first, back from the provider, stops.
func TestTwoBrowsersInChromium(t *testing.T) {
	first, second := chromiumtest.Start(t), chromiumtest.Start(t)
	r := newRig(t, setup{})
	session, token := r.session()
	chromiumtest.Do(first, t, chromedp.Navigate(r.page(token)), chromiumtest.Click(buttonContinue),
		chromedp.WaitVisible(buttonSignIn))
	chromiumtest.Do(second, t, chromedp.Navigate(r.page(token)), chromedp.WaitVisible(signOfTheEnd))
	wantInTab(second, t, headingElsewhere)
	first = pressBack(first, t)
	// on the page as it was left
	chromiumtest.Do(first, t, chromiumtest.Click(buttonContinue), chromedp.WaitVisible(buttonSignIn))
	first = pressBack(first, t)
	chromiumtest.Do(first, t, chromedp.WaitVisible(buttonContinue), chromedp.Reload(),
		chromedp.WaitVisible(buttonStop))
	chromiumtest.Do(first, t, chromiumtest.Click(buttonStop), chromedp.WaitNotPresent(buttonStop))
	chromiumtest.Do(second, t, chromiumtest.Click(chromedp.CSS("a.button")),
		chromiumtest.Click(buttonContinue), chromiumtest.Click(buttonSignIn),
		chromedp.WaitVisible(signOfTheEnd))
	wantInTab(second, t, headingVerified)
	chromiumtest.Do(first, t, chromedp.Reload(), chromedp.WaitVisible(signOfTheEnd))
	wantInTab(first, t, headingVerified)
	r.want(session.ID, sessions.Verified, sessions.NoReason)
}

// slowProvider is an OAuth 2 provider that signs everybody in at once and blocks the code's exchange until it
// is released. asked reports each exchange.
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
		http.Redirect(w, r, q.Get("redirect_uri")+"?"+
			url.Values{"code": {"c"}, "state": {q.Get("state")}}.Encode(), http.StatusSeeOther)
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
	mux.HandleFunc("GET /me", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]string{"id": "sailor_42"})
	})
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

func (p *slowProvider) network(t *testing.T, base string) *network.Network {
	t.Helper()
	n, err := network.New(netsettings.Settings{
		ID: "slow", Name: "Slow Network", Kind: netsettings.KindOAuth2, ClientID: "verifyd",
		ClientSecret: "secret", SubjectClaim: "id",
		AuthorizationEndpoint: p.URL + "/authorize", TokenEndpoint: p.URL + "/token",
		UserInfoEndpoint: p.URL + "/me",
	}, network.Options{BaseURL: base})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// While the provider is slow, another tab and an impatient reload show that, the code is exchanged once, and
// the session ends.
func TestSlowProviderInChromium(t *testing.T) {
	tab := chromiumtest.Start(t)
	r := newRig(t, setup{})
	p := newSlowProvider(t)
	r.nets = append(r.nets[:0], p.network(t, r.base))
	r.mount()
	session, token := r.session()
	second, end := chromedp.NewContext(tab)
	t.Cleanup(end)
	chromiumtest.Do(tab, t, chromedp.Navigate(r.page(token)))
	chromiumtest.Do(tab, t, chromiumtest.Click(buttonContinue))
	<-p.asked
	chromiumtest.Do(second, t, chromedp.Navigate(r.page(token)), chromedp.WaitVisible(buttonStop))
	wantInTab(second, t, headingAsk)
	close(p.let)
	chromiumtest.Do(tab, t, chromedp.WaitVisible(signOfTheEnd))
	wantInTab(tab, t, headingVerified)
	chromiumtest.Do(second, t, chromedp.Reload(), chromedp.WaitVisible(signOfTheEnd))
	wantInTab(second, t, headingVerified)
	r.want(session.ID, sessions.Verified, sessions.NoReason)
	if len(p.asked) != 0 {
		t.Error("the code was exchanged twice")
	}
}

// A provider that is down causes a notice above the button, in a browser too.
func TestProviderDownInChromium(t *testing.T) {
	tab := chromiumtest.Start(t)
	r := newRig(t, setup{})
	session, token := r.session()
	chromiumtest.Do(tab, t, chromedp.Navigate(r.page(token)), chromiumtest.Click(buttonContinue),
		chromedp.WaitVisible(buttonSignIn))
	r.stopProvider()
	r.restartNetworks()
	chromiumtest.Do(tab, t, chromedp.Navigate(r.page(token)), chromedp.WaitVisible(buttonStop),
		chromiumtest.Click(buttonContinue),
		chromedp.WaitNotPresent(buttonStop), chromedp.WaitVisible(chromedp.CSS(`.note[role="status"]`)))
	if said := chromiumtest.Text(tab, t, ".note"); !strings.Contains(said,
		"did not respond") {
		t.Errorf("the notice %q", said)
	}
	r.want(session.ID, sessions.Pending, sessions.NoReason)
}

// restartNetworks creates the networks again, so that they have not discovered their provider.
func (r *rig) restartNetworks() {
	r.t.Helper()
	r.startNetworks()
	r.mount()
}
