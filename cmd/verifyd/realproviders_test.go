//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/storage"
	"github.com/chromedp/chromedp"

	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/demo"
	"verifyd/dispatcher/callback/localca"
	"verifyd/edge/chromiumtest"
	"verifyd/edge/network"
	"verifyd/edge/network/netsettings"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/natstest/prove"
	"verifyd/sessions"
	"verifyd/sessions/failure"
)

// Sign-ins at third-party OpenID Connect providers: the whole service behind a front that speaks TLS, with a
// networks file, a receiver, and Chromium at the provider's own pages. docs/OPERATING.md describes what these
// providers do differently.

func TestGlewlwyd(t *testing.T) {
	prove.Only(t, "providers", "it signs in at a real provider, in a browser")
	t.Parallel()
	v := visitRealProvider(t, startGlewlwyd)
	who, other := v.p.users[0], v.p.users[1]
	v.verified("plain", who, "login", "continue")
	v.verified("domain", who, "consent", "continue") // to the e-mail address
	v.refused("strangers", who, failure.RuleEmailDomains)
	v.verified("group", who, "continue")
	v.refused("officers", who, failure.RuleGroups)
	v.loginAgain(who)
	v.honoursWhatIsSent(who, v.p.issuer)
	v.forget()
	v.withholds("domain", other)
	v.turnsBack("plain", other)
}

func TestLemonLDAP(t *testing.T) {
	prove.Only(t, "providers", "it signs in at a real provider, in a browser")
	t.Parallel()
	v := visitRealProvider(t, startLemonLDAP)
	who, other := v.p.users[0], v.p.users[1]
	v.verified("plain", who, "login", "consent")
	v.verified("domain", who, "consent") // to the e-mail address
	v.refused("strangers", who, failure.RuleEmailDomains)
	v.verified("group", who)
	v.refused("officers", who, failure.RuleGroups)
	v.loginAgain(who)
	v.honoursWhatIsSent(who, "")
	v.forget()
	v.declines("plain", other)
	v.turnsBack("plain", other)
}

// realVisit is a visitor of a service whose users sign in at a real provider.
type realVisit struct {
	visitor

	p     *realProvider
	api   api
	base  string // as users reach the service
	roots *x509.CertPool
}

// realNetworks are the ids of the networks in the networks file, all at the one provider, with what each adds
// to its entry.
func realNetworks(p *realProvider) map[string]string {
	_, domain, _ := strings.Cut(p.users[0].email, "@")
	return map[string]string{
		"plain":     "",
		"domain":    "email_domains: [" + domain + "]",
		"strangers": "email_domains: [elsewhere.example]",
		"group":     "require_groups: [officers, " + p.users[0].group + "]",
		"officers":  "require_groups: [officers]",
		"again":     "prompt: login",
	}
}

// probePath is the redirect URI of the probe, which is not a route of the service: the browser's address
// shows the result.
const probePath = "/probe"

func visitRealProvider(t *testing.T,
	start func(t *testing.T, p *realProvider, redirectURIs []string)) *realVisit {
	t.Helper()
	ca := must[*localca.Authority](t)(localca.New())
	cert := must[tls.Certificate](t)(ca.Issue(localca.Certificate{Hosts: []string{"localhost", "127.0.0.1"}}))
	leaf := must[*x509.Certificate](t)(x509.ParseCertificate(cert.Certificate[0]))
	tab := chromiumtest.Start(t, chromiumtest.Trust(leaf))
	listen := natstest.Address(t)
	// another site than the provider's, with cookies of its own
	base := strings.Replace(serveFront(t, cert, listen), "127.0.0.1", "localhost", 1)
	p := newRealProvider(t, ca, cert)
	redirectURIs := []string{base + probePath}
	for id := range realNetworks(&realProvider{}) {
		redirectURIs = append(redirectURIs, base+"/signin/"+id+"/callback")
	}
	start(t, p, redirectURIs)
	p.write(t, "networks.yaml", networksOf(p))
	p.write(t, "ca.pem", ca.PEM())
	r := boot(t, func(c *config.Config) {
		var f config.Faults
		c.Listen, c.BaseURL, c.DevNetwork = listen, base, ""
		c.Networks, c.NetworkRoots = config.NetworksFile(&f, p.path("networks.yaml")),
			config.Roots(&f, "network-ca-file", p.path("ca.pem"))
		if err := f.Err(); err != nil {
			t.Fatal(err)
		}
	})
	return &realVisit{
		visitor: visitor{t, r, tab}, p: p, api: api{base: "http://" + listen, key: r.apiKey}, base: base,
		roots: ca.Pool(),
	}
}

func networksOf(p *realProvider) []byte {
	var file bytes.Buffer
	for id, more := range realNetworks(p) {
		fmt.Fprintf(&file, "- id: %s\n  name: Network %s\n  kind: oidc\n  issuer: %s\n  client_id: "+
			"%s\n  client_secret: %s\n", id, id, p.issuer, realClient, realSecret)
		if more != "" {
			fmt.Fprintf(&file, "  %s\n", more)
		}
	}
	return file.Bytes()
}

// pass answers the provider's pages until the browser has returned, and returns their names.
func (v *realVisit) pass(who realUser, pages []providerPage) (asked []string) {
	v.t.Helper()
	var script strings.Builder
	fmt.Fprintf(&script, `(() => {
		if (document.readyState !== "complete") return "";
		if (location.origin === %q) return location.pathname === %q || document.querySelector(".sign, [role=status]") ? "back" : "";
		let e;`, v.base, probePath)
	for i, page := range pages {
		fmt.Fprintf(&script, `
		e = document.querySelector(%q);
		if (e && e.offsetParent && !e.dataset.answered) { e.dataset.answered = "1"; return "%d" }`, page.shows, i)
	}
	script.WriteString(`
		return "" })()`)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for v.tab.Err() == nil {
		<-tick.C
		// a page that is replaced while it is read is read again
		shown, _ := chromedp.Run(v.tab, chromedp.Evaluate[string](script.String()))
		if shown == "back" {
			return asked
		}
		if i, err := strconv.Atoi(shown); err == nil {
			if v.answered(pages[i].answer(who)) {
				asked = append(asked, pages[i].name)
			}
		}
	}
	at, _ := chromedp.Run(context.WithoutCancel(v.tab), chromedp.Location())
	v.t.Fatalf("after %q the browser is at %s", asked, at)
	return nil
}

// answerWithin bounds one answer to a provider's page. Its script may render the page again while it is
// filled in; then it is filled in again.
const answerWithin = 10 * time.Second

// answered fills in a page. If that did not end, the page is one that nobody has answered yet.
func (v *realVisit) answered(answer actions) bool {
	ctx, cancel := context.WithTimeout(v.tab, answerWithin)
	defer cancel()
	for _, a := range answer {
		if err := chromedp.Do(ctx, a); err != nil {
			v.t.Logf("a page of the provider is answered again: %v", err)
			_, _ = chromedp.Run(v.tab,
				chromedp.Evaluate[bool](
					`document.querySelectorAll("[data-answered]").forEach(e => delete e.dataset.answered) === undefined`))
			return false
		}
	}
	return true
}

// forget removes the provider's cookies from the browser.
func (v *realVisit) forget() {
	v.t.Helper()
	v.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, storage.ClearCookies, storage.ClearCookiesParams{})
		return err
	}))
}

// walk is one session with a network: through the provider's pages to the end, the one POST, and what the
// integrator reads.
func (v *realVisit) walk(id string, who realUser, pages []providerPage) (asked []string, heading string,
	got receipt) {
	v.t.Helper()
	s := v.start(id, who)
	asked = v.pass(who, pages)
	if ended := must[bool](v.t)(chromedp.Run(v.tab,
		chromedp.Evaluate[bool](`document.querySelector(".sign") !== null`))); !ended {
		v.t.Fatalf("%s: the provider asked for %q, and the sign-in did not end:\n%s", id, asked, v.r.log)
	}
	return asked, v.text("h1"), v.ended(s, who)
}

// start begins a session, and opens its link and presses the network's button.
func (v *realVisit) start(id string, who realUser) demo.Started {
	v.t.Helper()
	s := v.api.init(v.t, map[string]any{
		"platform": "discord", "platform_user_id": who.name, "guild_id": "118",
		"callback_url": v.r.inbox.CallbackURL(),
	})
	v.do(chromedp.Navigate(s.VerifyURL),
		chromiumtest.Click(chromedp.CSS(`button[name="network"][value="`+id+`"]`)))
	return s
}

// ended waits for the POST of a session's end, and reads the session back.
func (v *realVisit) ended(s demo.Started, who realUser) receipt {
	v.t.Helper()
	var body string
	select {
	case post := <-v.r.inbox.got:
		body = string(post.Body)
	case <-v.tab.Done():
		v.t.Fatalf("no POST; the page reads %q", v.text("main"))
	}
	got := v.api.until(v.t, s.Session, "delivered")
	if want := fmt.Sprintf(`{"platform_user_id":%q,"guild_id":"118","verified":%t}`, who.name,
		got.State == "verified"); body != want {
		v.t.Errorf("POST %s, want %s", body, want)
	}
	if n := v.r.inbox.count(got.ID); n != 1 {
		v.t.Errorf("%d POSTs", n)
	}
	return got
}

// verified signs in with success; the provider asks for exactly this.
func (v *realVisit) verified(id string, who realUser, asks ...string) {
	v.t.Helper()
	asked, heading, got := v.walk(id, who, v.p.pages)
	if !slices.Equal(asked, asks) || heading != "You are verified" || got.State != "verified" {
		v.t.Errorf("%s: the provider asked for %q, the page reads %q, the session is %s %s", id, asked,
			heading, got.State, got.Reason)
	}
}

// refused signs in as a user whom a rule refuses because of the provider's claims.
func (v *realVisit) refused(id string, who realUser, rule failure.Rule) {
	v.t.Helper()
	_, heading, got := v.walk(id, who, v.p.pages)
	v.wantNo(id, heading, got, sessions.Refused, rule)
}

// declines says no on the provider's own page.
func (v *realVisit) declines(id string, who realUser) {
	v.t.Helper()
	_, heading, got := v.walk(id, who, v.p.refusal)
	v.wantNo(id, heading, got, sessions.Declined, failure.NoRule)
}

// withholds refuses on the provider's own page what a rule needs.
func (v *realVisit) withholds(id string, who realUser) {
	v.t.Helper()
	asked, heading, got := v.walk(id, who, v.p.refusal)
	if !slices.Equal(asked, []string{"login", "continue"}) {
		v.t.Errorf("%s: the provider asked for %q", id, asked)
	}
	v.wantNo(id, heading, got, sessions.Refused, failure.RuleEmailDomains)
}

// turnsBack leaves the provider's page for the session's link, and declines there.
func (v *realVisit) turnsBack(id string, who realUser) {
	v.t.Helper()
	v.forget()
	s := v.start(id, who)
	v.do(chromedp.WaitVisible(chromedp.CSS(v.p.refusal[0].shows)), chromedp.Navigate(s.VerifyURL))
	v.press(`button[value="decline"]`, ".sign")
	v.wantNo(id, v.text("h1"), v.ended(s, who), sessions.Declined, failure.NoRule)
}

func (v *realVisit) wantNo(id, heading string, got receipt, reason sessions.Reason, rule failure.Rule) {
	v.t.Helper()
	if heading != "You were not verified" || got.State != "failed" || got.Reason != string(reason) ||
		got.Rule != string(rule) {
		v.t.Errorf("%s: the page reads %q, the session is %s %s %s", id, heading, got.State, got.Reason,
			got.Rule)
	}
}

// loginAgain signs in by a network that sends prompt=login, until the password is asked for although the
// browser is known. A provider may treat a login of the last seconds as a new one.
func (v *realVisit) loginAgain(who realUser) {
	v.t.Helper()
	for v.tab.Err() == nil {
		asked, heading, got := v.walk("again", who, v.p.pages)
		if heading != "You are verified" || got.State != "verified" {
			v.t.Fatalf("the page reads %q, the session is %s %s", heading, got.State, got.Reason)
		}
		if slices.Contains(asked, "login") {
			return
		}
	}
}

// honoursWhatIsSent checks that the provider binds a code to the PKCE challenge and to one use, returns the
// nonce, and identifies itself by the iss parameter, or not.
func (v *realVisit) honoursWhatIsSent(who realUser, issuer string) {
	v.t.Helper()
	probe := must[*network.Network](v.t)(network.New(
		netsettings.Settings{
			ID: "probe", Name: "Probe", Kind: netsettings.KindOIDC, Issuer: v.p.issuer, ClientID: realClient,
			ClientSecret: realSecret,
		},
		network.Options{BaseURL: v.base, RootCAs: v.roots, ReturnPath: probePath},
	))
	begin := func() (network.Attempt, network.Return) {
		v.t.Helper()
		a := network.NewAttempt()
		v.do(chromedp.Navigate(must[string](v.t)(probe.AuthURL(v.t.Context(), a))))
		v.pass(who, v.p.pages)
		at := must[*url.URL](v.t)(url.Parse(must[string](v.t)(chromedp.Run(v.tab, chromedp.Location()))))
		return a, must[network.Return](v.t)(network.ParseReturn(at.Query()))
	}
	fails := func(what, stage, class string, a network.Attempt, r network.Return) {
		v.t.Helper()
		who, err := probe.Redeem(v.t.Context(), a, r)
		if t, ok := errors.AsType[*network.Error](err); !ok || t.Stage != stage || t.Class != class {
			v.t.Errorf("%s: %+v, %v", what, who, err)
		}
	}
	a, r := begin()
	a.Verifier = network.NewAttempt().Verifier
	fails("another attempt's verifier", network.StageToken, network.ClassRefused, a, r)
	a, r = begin()
	a.Nonce = network.NewAttempt().Nonce
	fails("another attempt's nonce", network.StageIDToken, network.ClassNonce, a, r)
	a, r = begin()
	if r.Issuer != issuer {
		v.t.Errorf("iss = %q, want %q", r.Issuer, issuer)
	}
	if id, err := probe.Redeem(v.t.Context(), a, r); err != nil || id.Subject == "" {
		v.t.Errorf("the same without a change: %+v, %v", id, err)
	}
	fails("a code that was used", network.StageToken, network.ClassRefused, a, r)
}
