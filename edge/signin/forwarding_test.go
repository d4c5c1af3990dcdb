package signin_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"verifyd/edge/chromiumtest"
	"verifyd/sessions"
	"verifyd/sessions/proof"
	"verifyd/sessions/store"
)

// Forwarding is the attack that levels are for: an attacker starts a session for their own account, and makes
// a victim, who can be verified, open its link. Here it is tried in two real browsers, in the orders of a
// table: steps, one a line, of the attacker (a) and the victim (v).
//
//	a open           opens the link
//	a press          presses Continue on the page that is open, wherever that leads
//	a sign           signs in on the network's page that is open, wherever that leads
//	a answers        does so, but no browser opens the address that the network sends it to
//	v goto a.network opens the address of the network's page to which a's press led
//	v goto a.return  opens the address to which the network sent a
//	a sees TEXT      reads that on the page that is open
//	wait             lets time go by, until nobody's last press keeps others out
//
// If a network is to prove the platform account, the attacker signs in as the one that the session is for,
// and the victim as another; otherwise each signs in as themselves.
type forwarding struct {
	t       *testing.T
	r       *rig
	session sessions.Session
	token   sessions.Token
	people  map[string]*person
}

// person is the attacker or the victim, with their own browser.
type person struct {
	tab               context.Context
	account, identity string      // at the platform's network, and elsewhere
	returns           chan string // the addresses to which networks have sent the browser
	addresses         map[string]string
}

// meet opens a browser for each of the two, at a service of their own.
func meet(t *testing.T) (*rig, map[string]*person) {
	t.Helper()
	only := true
	browser, r := chromiumtest.Start(t), newRig(t, setup{platform: &only})
	people := map[string]*person{
		"a": {account: "sailor_42", identity: "attacker"},
		"v": {account: "victim_7", identity: "victim"},
	}
	for _, p := range people {
		p.sitDown(chromiumtest.Profile(browser, t), t)
	}
	return r, people
}

// sitDown makes a person use a tab, and reports each return that it opens.
func (p *person) sitDown(tab context.Context, t *testing.T) {
	t.Helper()
	p.tab, p.returns = tab, make(chan string, 100)
	err := chromedp.Listen(tab, func(event any) {
		e, ok := event.(*network.EventRequestWillBeSent)
		if ok && strings.Contains(e.Request.URL, "/callback?") {
			p.returns <- e.Request.URL
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// forward starts a session for the attacker's account.
func forward(t *testing.T, r *rig, people map[string]*person, level proof.Level) *forwarding {
	t.Helper()
	r.clock.offset.Store(0)
	r.mount() // which begins to count presses again, since the clock was set back
	f := &forwarding{t: t, r: r, people: people}
	f.session, f.token = r.session(asking(level))
	for _, p := range people {
		p.addresses = map[string]string{}
	}
	return f
}

// play takes the steps of an order.
func (f *forwarding) play(steps string) {
	f.t.Helper()
	for line := range strings.Lines(steps) {
		if line = strings.TrimSpace(line); line != "" {
			f.step(line)
		}
	}
}

func (f *forwarding) step(line string) {
	f.t.Helper()
	who, rest, _ := strings.Cut(line, " ")
	verb, what, _ := strings.Cut(rest, " ")
	p := f.people[who]
	switch verb {
	case "":
		f.r.clock.advance(3 * time.Minute)
	case "open":
		chromiumtest.Do(p.tab, f.t, chromedp.Navigate(f.r.page(f.token)))
	case "press":
		f.press(p)
	case "sign":
		f.sign(p)
	case "answers":
		p.addresses["return"] = f.r.browser().signIn(p.addresses["network"], p.subject(f.t), "sign-in")
	case "goto":
		whose, name, _ := strings.Cut(what, ".")
		chromiumtest.Do(p.tab, f.t, chromedp.Navigate(f.people[whose].addresses[name]))
	case "sees":
		if text := p.text(f.t, "body"); !strings.Contains(text, what) {
			f.t.Errorf("%q, and the page says:\n%s", line, text)
		}
	default:
		f.t.Fatalf("no such step: %q", line)
	}
}

func (f *forwarding) press(p *person) {
	f.t.Helper()
	chromiumtest.Do(p.tab, f.t, chromiumtest.Leave(chromiumtest.Click(buttonContinue)))
	if at := chromiumtest.Run(p.tab, f.t, chromedp.Location()); strings.HasPrefix(at, f.r.dev.Issuer()) {
		p.addresses["network"] = at
	}
}

func (f *forwarding) sign(p *person) {
	f.t.Helper()
	for len(p.returns) > 0 { // opened by hand
		<-p.returns
	}
	chromiumtest.Do(p.tab, f.t, chromedp.SetValue(chromedp.CSS("#subject"), p.subject(f.t)),
		chromiumtest.Leave(chromiumtest.Click(buttonSignIn)))
	p.addresses["return"] = <-p.returns
}

// subject is the identity with which a person signs in on the network's open page.
func (p *person) subject(t *testing.T) string {
	t.Helper()
	at := mustQuery(t, chromiumtest.Run(p.tab, t, chromedp.Location()))
	if strings.Contains(at.Get("redirect_uri"), "/signin/platform/") {
		return p.account
	}
	return p.identity
}

func (p *person) text(t *testing.T, of chromedp.CSS) string {
	t.Helper()
	return chromiumtest.Text(p.tab, t, of)
}

// shows reports whether the page that is open has something.
func (p *person) shows(t *testing.T, what chromedp.CSS) bool {
	t.Helper()
	return chromiumtest.Run(p.tab, t, chromedp.Evaluate[bool](`!!document.querySelector('`+string(what)+`')`))
}

// code returns the code on the page that is open.
func (p *person) code(t *testing.T) string {
	t.Helper()
	code, ok := proof.ParseCode(p.text(t, "kbd"))
	if !ok {
		t.Errorf("no code on the page: %q", code)
	}
	return code
}

// finish completes a session, as its honest user.
func (f *forwarding) finish(p *person, s sessions.Session, token sessions.Token) {
	f.t.Helper()
	chromiumtest.Do(p.tab, f.t, chromedp.Navigate(f.r.page(token)))
	for p.shows(f.t, buttonContinue) {
		f.press(p)
		f.sign(p)
	}
	if s.Level == proof.Code {
		if _, err := f.r.store.Confirm(f.t.Context(), s, p.account, p.code(f.t)); err != nil {
			f.t.Errorf("the honest user's code: %v", err)
		}
	}
	f.r.want(s.ID, sessions.Verified, sessions.NoReason)
}

// failed checks that the attack has failed, whatever the two do with what they see now, and that honest users
// can continue: the victim with a session of their own, and the account's owner with this one, if nothing has
// ended it and no victim has signed in.
func (f *forwarding) failed() {
	f.t.Helper()
	a, v := f.people["a"], f.people["v"]
	f.play("a open\nv open")
	if a.shows(f.t, "kbd") {
		f.t.Errorf("the attacker is shown a code:\n%s", a.text(f.t, "body"))
	}
	if v.shows(f.t, "kbd") { // and the victim sends it, from their platform account
		_, err := f.r.store.Confirm(f.t.Context(), f.session, v.account, v.code(f.t))
		if _, ok := errors.AsType[*store.WrongCodeError](err); !ok {
			f.t.Errorf("the code from the victim's account: %v", err)
		}
	}
	stands, err := f.r.store.Read(f.t.Context(), f.session.ID)
	if err != nil || stands.State == sessions.Verified {
		f.t.Fatalf("after the attack: %+v, %v", stands.Outcome, err)
	}
	own, token := f.r.session(asking(f.session.Level), func(q *sessions.Request) {
		q.PlatformUserID = v.account
	})
	f.finish(v, own, token)
	if stands.State == sessions.Pending && stands.Progress.Network == "" {
		f.play("wait")
		f.finish(a, f.session, f.token)
	}
}

// With a link the attack works, and the page has warned.
func TestForwardingALink(t *testing.T) {
	t.Parallel()
	r, people := meet(t)
	f := forward(t, r, people, proof.Link)
	f.play(`
		v open
		v sees Close this page: signing in would verify their account, not yours.
		v press
		v sign
		v sees You are verified`)
	f.r.want(f.session.ID, sessions.Verified, sessions.NoReason)
}

// A code prevents it in every order, and so does the platform account.
func TestForwardingInEveryOrder(t *testing.T) {
	t.Parallel()
	for level, orders := range map[proof.Level]map[string]string{
		proof.Code: codeOrders, proof.Account: accountOrders,
	} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			r, people := meet(t)
			for name, steps := range orders {
				t.Run(name, func(t *testing.T) {
					f := forward(t, r, people, level)
					f.play(steps)
					f.failed()
				})
			}
		})
	}
}
