package signin_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"verifyd/edge/chromiumtest"
	"verifyd/sessions"
	"verifyd/sessions/failure"
	"verifyd/sessions/proof"
)

// inDocs are the pages whose pictures are in docs/screens, where integrators see what their users see, and
// the widths and colours of those pictures.
var inDocs = func() map[string]bool {
	in := map[string]bool{}
	for name := range strings.FieldsSeq("ask-sign ask-logo app elsewhere back declined " +
		"refused-min_account_age expired down code code-wrong account account-half " +
		"ask-ar ask-ja ask-ko ask-zh-Hans") {
		in[name+" 390 light"] = true
	}
	for _, name := range []string{"ask-sign", "ask-logo", "back"} {
		in[name+" 1280 light"], in[name+" 390 dark"] = true, true
	}
	return in
}()

// look is chromiumtest.Look for a page of this package.
func look(tab context.Context, t *testing.T, name, axe string, shown shownState,
	screens ...chromiumtest.Screen) {
	t.Helper()
	for i, s := range screens {
		screens[i].Docs = !s.Zoom && inDocs[fmt.Sprint(name, " ", s.Width, " ", s.Scheme)]
	}
	chromiumtest.Look(tab, t, "sign-in-"+name, axe, shown.open(), screens...)
}

// Every page in every state, at every width, in both colours and with large text: nothing sticks out, no rule
// of axe is broken, and the keyboard leads to everything and shows where it is. CONTRIBUTING.md describes how
// the pictures in docs/screens are made.
func TestScreens(t *testing.T) {
	t.Parallel()
	tab, axe := chromiumtest.Start(t), chromiumtest.Axe(t)
	shown := everyState(t)
	for _, name := range slices.Sorted(maps.Keys(shown)) {
		// At 200 % zoom a window of 640 has 320 pixels; text alone at 200 % keeps the window as it is.
		zoomed := chromiumtest.Screen{Width: 390, Scheme: "light", Zoom: true}
		look(tab, t, name, axe, shown[name], append(chromiumtest.Everywhere(), zoomed)...)
	}
}

// The question in each language, and what is special in one that runs from right to left.
func TestScreensInEveryLanguage(t *testing.T) {
	t.Parallel()
	tab, axe := chromiumtest.Start(t), chromiumtest.Axe(t)
	r := newRig(t, setup{})
	session, ended := r.session(func(q *sessions.Request) { q.Account = "acc_back" })
	if _, err := r.store.Complete(t.Context(), session,
		sessions.Outcome{State: sessions.Verified}); err != nil {
		t.Fatal(err)
	}
	_, ask := r.session()
	_, lease := r.session()
	r.browser().press(lease)
	shown := map[string]shownState{
		"app-ar":       {address: r.page(ask) + "&lang=ar", agent: agentInsta, details: true},
		"elsewhere-ar": {address: r.page(lease) + "&lang=ar"},
		"verified-ar":  {address: r.page(ended) + "&lang=ar"},
		"languages-ar": {address: r.page(ask) + "&lang=&from=ar"},
	}
	_, verified := r.session(func(q *sessions.Request) { q.Account = "acc_verified" })
	for _, lang := range []string{"en", "ar", "de", "ja"} {
		shown["ask-verified-"+lang] = shownState{address: r.page(verified) + "&lang=" + lang}
	}
	for _, lang := range languages(t) {
		shown["ask-"+lang] = shownState{address: r.page(ask) + "&lang=" + lang}
	}
	for _, name := range slices.Sorted(maps.Keys(shown)) {
		look(tab, t, name, axe, shown[name], chromiumtest.Screen{Width: 320, Scheme: "dark"},
			chromiumtest.Screen{Width: 390, Scheme: "light", Axe: true})
	}
	chromiumtest.Do(tab, t, shown["ask-ar"].open())
	// Arabic runs from right to left, and a Latin name within it the other way.
	const directions = `["h1", "dd bdi"].map(s => getComputedStyle(document.querySelector(s)).direction).join()`
	if way := chromiumtest.Run(tab, t, chromedp.Evaluate[string](directions)); way != "rtl,ltr" {
		t.Errorf("directions %q", way)
	}
}

// shownState is a page as a browser gets it.
type shownState struct {
	address string
	agent   string       // User-Agent; the browser's own when empty
	cookie  *http.Cookie // of the browser that began; none when nil
	press   bool         // Continue, in a browser that has lost its cookies
	details bool         // everything that unfolds is unfolded
}

func (s shownState) open() chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		if _, err := cdp.Call(ctx, target, network.ClearBrowserCookies, cdp.Empty{}); err != nil {
			return err
		}
		if _, err := cdp.Call(ctx, target, emulation.SetUserAgentOverride,
			emulation.SetUserAgentOverrideParams{UserAgent: s.agent}); err != nil {
			return err
		}
		if s.cookie != nil {
			p := network.SetCookieParams{Name: s.cookie.Name, Value: s.cookie.Value, URL: s.address}
			if _, err := cdp.Call(ctx, target, network.SetCookie, p); err != nil {
				return err
			}
		}
		if err := chromedp.Do(ctx, chromedp.Navigate(s.address)); err != nil {
			return err
		}
		if s.details {
			_, err := chromedp.Run(ctx,
				chromedp.Evaluate[int](`document.querySelectorAll("details").forEach(d => d.open = true), 0`))
			return err
		}
		if !s.press {
			return nil
		}
		if _, err := cdp.Call(ctx, target, network.ClearBrowserCookies, cdp.Empty{}); err != nil {
			return err
		}
		return chromedp.Do(ctx, chromiumtest.Click(chromedp.CSS(`button[name="network"]`)),
			chromedp.WaitVisible(chromedp.CSS(".sign")))
	})
}

// everyState returns each page as a user gets it.
func everyState(t *testing.T) map[string]shownState {
	t.Helper()
	r := newRig(t, setup{})
	fresh := func(change ...func(*sessions.Request)) sessions.Token {
		_,
			token := r.session(change...)
		return token
	}
	at := func(token sessions.Token) shownState { return shownState{address: r.page(token)} }
	ended := func(o sessions.Outcome, change ...func(*sessions.Request)) shownState {
		session, token := r.session(change...)
		if _, err := r.store.Complete(t.Context(), session, o); err != nil {
			t.Fatal(err)
		}
		return at(token)
	}
	of := func(account string) func(*sessions.Request) {
		return func(q *sessions.Request) {
			q.Account, q.DisplayName, q.GroupName = account, "Sailor Jo", "Harbor Guild"
		}
	}
	hostile := func(q *sessions.Request) {
		q.PlatformUserID, q.Platform, q.GuildID, q.Test = "sailor\u202e24_\n"+strings.Repeat("long", 60),
			"чат «море»", "שלום 🇩🇪 "+strings.Repeat("e\u0301\u0323", 20), true
		q.DisplayName, q.GroupName = "\u202eyliaS "+strings.Repeat("W", 90), "שלום"
	}
	b := r.browser()
	begun := fresh()
	b.press(begun)
	mine := at(begun)
	mine.cookie = b.cookieAt(r.base, "verifyd_browser")
	recordFailure := fresh()
	verified := sessions.Outcome{State: sessions.Verified, Network: "example"}
	states := map[string]shownState{
		"ask":      at(fresh()),
		"ask-sign": at(fresh(of("acc_back"))),
		"ask-logo": at(fresh(of("acc_branded"))),
		"hostile":  at(fresh(hostile)),
		"trouble":  {address: b.To(b.Get(b.back(recordFailure, "x", "error")))},
		"verified": ended(verified),
		"back":     ended(verified, of("acc_back")),
		"declined": ended(sessions.Outcome{State: sessions.Failed, Reason: sessions.Declined}),
		"refused": ended(sessions.Outcome{State: sessions.Failed, Reason: sessions.Refused,
			Network: "example"}),
		"canceled": ended(sessions.Outcome{State: sessions.Canceled, Reason: sessions.CanceledReason}),
		"unknown":  {address: r.base + "/?session=x"},
		"nowhere":  {address: r.base + "/"},
		"lost":     {address: r.base + "/signin/example/callback"},
		"card": {address: r.page(fresh()),
			agent: "Mozilla/5.0 (compatible; Discordbot/2.0; +https://discordapp.com)"},
		"begun":       mine,
		"elsewhere":   at(begun),
		"cookies":     {address: r.page(fresh()), press: true},
		"app":         {address: r.page(fresh()), agent: agentInsta, details: true},
		"app-unnamed": {address: r.page(fresh()), agent: agentSomeApp},
		"languages":   {address: r.page(fresh()) + "&lang="},
	}
	for note := range strings.FieldsSeq("unreachable checking unconfirmed unsaved clock stopped") {
		states[note] = shownState{address: r.page(recordFailure) + "&note=" + note}
	}
	for _, rule := range []failure.Rule{
		failure.RuleEmailDomains, failure.RuleAccountAge, failure.RuleGroups, failure.RuleDeny,
		failure.RuleOneIdentity,
	} {
		states["refused-"+string(rule)] = ended(sessions.Outcome{State: sessions.Failed,
			Reason: sessions.Refused, Rule: rule, Network: "example"})
	}
	maps.Copy(states, statesElsewhere(t))
	return states
}

// statesElsewhere are those that need a service of their own.
func statesElsewhere(t *testing.T) map[string]shownState {
	t.Helper()
	many := newRig(t, setup{networks: 3})
	_, manyToken := many.session(func(q *sessions.Request) { q.GuildID = "" })
	away := newRig(t, setup{waiting: briefly()})
	_, awayToken := away.session()
	away.away()
	expired := newRig(t, setup{})
	_, expiredToken := expired.session()
	expired.clock.advance(sessions.Lifetime)
	taken := newRig(t, setup{})
	_, takenToken := taken.session()
	taken.browser().press(takenToken)
	taken.clock.advance(sessions.LeaseDuration + time.Second)
	untestable := newRig(t, setup{noTest: true})
	_, untestableToken := untestable.session(ofTestKey)
	often := newRig(t, setup{})
	often.clock.stop() // or the used units would be refilled while pictures are taken
	_, oftenToken := often.session()
	var last answer
	for range 21 {
		last = often.browser().pressAt(oftenToken, "example")
	}
	last.WantPage(t, http.StatusTooManyRequests, headingOften)
	down := newRig(t, setup{networks: 2})
	_, downToken := down.session()
	down.stopProvider()
	if err := down.nets[0].Discover(t.Context()); err == nil {
		t.Fatal("a provider that is down answers")
	}
	states := statesOfSteps(t)
	maps.Copy(states, map[string]shownState{
		"down":        {address: down.page(downToken)},
		"often":       {address: often.page(oftenToken), press: true},
		"many":        {address: many.page(manyToken)},
		"unavailable": {address: away.page(awayToken)},
		"expired":     {address: expired.page(expiredToken)},
		"takeover":    {address: taken.page(takenToken)},
		"untestable":  {address: untestable.page(untestableToken)},
	})
	return states
}

// statesOfSteps are those of sessions that require more than a link.
func statesOfSteps(t *testing.T) map[string]shownState {
	t.Helper()
	only := true
	r := newRig(t, setup{platform: &only})
	states := map[string]shownState{}
	show := func(name string, token sessions.Token, b *browser) {
		states[name] = shownState{address: r.page(token)}
		if b != nil {
			states[name] = shownState{address: r.page(token), cookie: b.cookieAt(r.base, "verifyd_browser")}
		}
	}
	_, token := r.session(asking(proof.Code))
	show("code-to-come", token, nil)
	b := r.browser()
	_, token = r.session(asking(proof.Code))
	b.signsIn(token, "example", "somebody")
	show("code", token, b)
	show("code-elsewhere", token, nil)
	s, token := r.session(asking(proof.Code))
	if _, err := r.store.Complete(t.Context(), s, sessions.Outcome{
		State: sessions.Failed, Reason: sessions.Unconfirmed,
	}); err != nil {
		t.Fatal(err)
	}
	show("code-wrong", token, nil)
	_, token = r.session(asking(proof.Account))
	show("account", token, nil)
	s, token = r.session(asking(proof.Account))
	b.signsIn(token, "example", s.PlatformUserID)
	show("account-half", token, b)
	arabic := states["code"]
	arabic.address += "&lang=ar"
	states["code-ar"] = arabic
	return states
}

// cookieAt returns a cookie of the browser.
func (b *browser) cookieAt(address, name string) *http.Cookie {
	b.t.Helper()
	for _, c := range b.Client.Jar.Cookies(mustURL(b.t, address)) {
		if c.Name == name {
			return c
		}
	}
	b.t.Fatalf("no cookie %s", name)
	return nil
}
