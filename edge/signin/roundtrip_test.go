package signin_test

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"verifyd/sessions"
)

const (
	headingAsk         = "Is this you?"
	headingVerified    = "You are verified"
	headingNotVerified = "You were not verified"
)

func TestWholeRoundTrip(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]setup{
		"plain":            {},
		"https":            {tls: true},
		"prefix":           {prefix: "/verify"},
		"https and prefix": {tls: true, prefix: "/a/b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, s)
			session, token := r.session()
			b := r.browser()
			ask := b.Get(b.page(token))
			ask.WantPage(t, http.StatusOK, headingAsk)
			for _, part := range []string{
				"<bdi>Harbor Guild</bdi> asks you", "<bdi>sailor_42</bdi>", "<bdi>Discord</bdi>",
				"118203948571029384</bdi>",
				"Continue with <bdi>Example Network</bdi>", "10</bdi> minutes after this page was opened",
				`action="` + s.prefix + `/signin"`,
				`value="` + token.Reveal() + `"`,
			} {
				if !strings.Contains(ask.Body, part) {
					t.Errorf("the page lacks %q\n%s", part, ask.Body)
				}
			}
			back := b.Get(b.back(token, "whoever", "sign-in"))
			if to := back.Header.Get("Location"); to != s.prefix+"/?session="+token.Reveal() {
				t.Errorf("the return leads to %q", to)
			}
			r.want(session.ID, sessions.Verified, sessions.NoReason)
			end := b.Follow(back)
			end.WantPage(t, http.StatusOK, headingVerified)
			if strings.Contains(end.Body, "<form") {
				t.Error("a session that ended offers a form")
			}
		})
	}
}

func TestFlowCookie(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		setup  setup
		prefix string
		path   string
	}{
		"plain":            {setup{prefix: "/v"}, "verifyd_flow_", "/v/signin"},
		"https":            {setup{tls: true}, "__Host-verifyd_flow_", "/"},
		"https and prefix": {setup{tls: true, prefix: "/v"}, "__Secure-verifyd_flow_", "/v/signin"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, tc.setup)
			_, token := r.session()
			b := r.browser()
			b.Get(b.page(token))
			a := b.continues(token)
			line := a.Header.Get("Set-Cookie")
			c, err := http.ParseSetCookie(line)
			if err != nil {
				t.Fatalf("cookie %q: %v", line, err)
			}
			if !strings.HasPrefix(c.Name, tc.prefix) || len(c.Name) != len(tc.prefix)+16 {
				t.Errorf("name %q", c.Name)
			}
			if c.Path != tc.path || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode ||
				c.Secure != tc.setup.tls {
				t.Errorf("attributes: %s", line)
			}
			if c.MaxAge < 1190 || c.MaxAge > 1200 || len(c.Value) > 700 {
				t.Errorf("max age %d, %d bytes", c.MaxAge, len(c.Value))
			}
			if state := mustQuery(t, b.To(a)).Get("state"); state == "" || strings.Contains(line, state) ||
				strings.Contains(line, token.Reveal()) {
				t.Error("the cookie shows the state or the token")
			}
		})
	}
}

func TestNotVerified(t *testing.T) {
	t.Parallel()
	match := setup{subjectMatch: true}
	for name, tc := range map[string]struct {
		setup   setup
		subject string
		action  string
		reason  sessions.Reason
	}{
		"declined at the provider":            {setup{}, "sailor_42", "decline", sessions.Declined},
		"another subject where it must match": {match, "sailor_43", "sign-in", sessions.Refused},
		"other case where it must match":      {match, "Sailor_42", "sign-in", sessions.Refused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, tc.setup)
			session, token := r.session()
			b := r.browser()
			end := b.Follow(b.Get(b.back(token, tc.subject, tc.action)))
			end.WantPage(t, http.StatusOK, headingNotVerified)
			r.want(session.ID, sessions.Failed, tc.reason)
		})
	}
}

func TestSubjectThatMatches(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{subjectMatch: true})
	session, token := r.session()
	b := r.browser()
	b.Follow(b.Get(b.back(token, "sailor_42", "sign-in"))).WantPage(t, http.StatusOK, headingVerified)
	r.want(session.ID, sessions.Verified, sessions.NoReason)
}

func TestDontVerifyMe(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	session, token := r.session()
	b := r.browser()
	form := url.Values{"session": {token.Reveal()}, "action": {"decline"}}
	a := b.Post(r.base+"/signin", form)
	if a.Header.Get("Set-Cookie") != "" {
		t.Error("declining set a cookie")
	}
	b.Follow(a).WantPage(t, http.StatusOK, headingNotVerified)
	r.want(session.ID, sessions.Failed, sessions.Declined)
	// A second press, and Continue in a tab that still shows the question, change nothing.
	b.Follow(b.Post(r.base+"/signin", form)).WantPage(t, http.StatusOK, headingNotVerified)
	if to := b.press(token); to != b.page(token) {
		t.Errorf("Continue after the end leads to %q", to)
	}
	r.want(session.ID, sessions.Failed, sessions.Declined)
}

func TestTroubleThenSuccess(t *testing.T) {
	t.Parallel()
	for action, class := range map[string]string{"error": "refused", "token-error": "status"} {
		t.Run(action, func(t *testing.T) {
			r := newRig(t, setup{})
			session, token := r.session()
			b := r.browser()
			page := b.Follow(b.Get(b.back(token, "sailor_42", action)))
			page.WantPage(t, http.StatusOK, headingAsk)
			if !strings.Contains(page.Body, `role="status"`) ||
				!strings.Contains(page.Body, "<bdi>Example Network</bdi> did not") &&
					!strings.Contains(page.Body, "sign-in at <bdi>Example Network</bdi> did not finish") {
				t.Errorf("no notice\n%s", page.Body)
			}
			r.want(session.ID, sessions.Pending, sessions.NoReason)
			if !strings.Contains(r.log.String(), `"class":"`+class+`"`) {
				t.Errorf("log lacks class %q:\n%s", class, r.log)
			}
			b.Follow(b.Get(b.back(token, "sailor_42", "sign-in"))).WantPage(t, http.StatusOK, headingVerified)
		})
	}
}

func TestReturnOfAnotherIssuer(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	session, token := r.session()
	b := r.browser()
	back := b.back(token, "sailor_42", "sign-in")
	state := mustQuery(t, back).Get("state")
	lie := r.base + "/signin/example/callback?" +
		url.Values{"state": {state}, "iss": {"https://evil.example"}, "code": {"x"}}.Encode()
	b.Follow(b.Get(lie)).WantPage(t, http.StatusOK, headingAsk) // an answer of another issuer is no verdict
	// The attempt is spent, so its genuine return is ignored.
	b.Follow(b.Get(back)).WantPage(t, http.StatusOK, headingAsk)
	r.want(session.ID, sessions.Pending, sessions.NoReason)
	if r.outcomes("trouble") != 1 || r.outcomes("repeated") != 1 {
		t.Errorf("log:\n%s", r.log)
	}
}

func TestProviderThatIsDown(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	session, token := r.session()
	b := r.browser()
	back := b.back(token, "sailor_42", "sign-in")
	r.stopProvider()
	page := b.Follow(b.Get(back))
	page.WantPage(t, http.StatusOK, headingAsk)
	if !strings.Contains(page.Body, "<bdi>Example Network</bdi> did not respond") {
		t.Errorf("no notice\n%s", page.Body)
	}
	r.want(session.ID, sessions.Pending, sessions.NoReason)
}

func TestProviderThatWasNeverUp(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	_, token := r.session()
	b := r.browser()
	r.stopProvider()
	b.Get(b.page(token))
	a := b.continues(token)
	if a.Header.Get("Set-Cookie") != "" {
		t.Error("an attempt that could not begin set a cookie")
	}
	if page := b.Follow(a); !strings.Contains(page.Body, "<bdi>Example Network</bdi> did not respond") {
		t.Errorf("no notice\n%s", page.Body)
	}
	page := b.Get(b.page(token)) // without a notice: a user who has just come
	for _, part := range []string{
		`aria-describedby="away-example"`, `id="away-example"`,
		"<bdi>Example Network</bdi> is not responding right now",
	} {
		if !strings.Contains(page.Body, part) {
			t.Errorf("the button does not say %q\n%s", part, page.Body)
		}
	}
}

func TestReloadAndBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	session, token := r.session()
	b := r.browser()
	back := b.back(token, "sailor_42", "sign-in")
	for range 3 {
		b.Follow(b.Get(back)).WantPage(t, http.StatusOK, headingVerified)
	}
	r.want(session.ID, sessions.Verified, sessions.NoReason)
	if r.outcomes("verified") != 1 {
		t.Errorf("judged more than once:\n%s", r.log)
	}
}

// A person who closes the tab while the provider is asked is still verified: the code could be posted only
// once.
func TestBrowserThatDoesNotWait(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	session, token := r.session()
	b := r.browser()
	back := b.back(token, "sailor_42", "sign-in")
	req := b.Request(http.MethodGet, back, "")
	for _, c := range b.Client.Jar.Cookies(req.URL) {
		req.AddCookie(c)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	r.server.Config.Handler.ServeHTTP(httptest.NewRecorder(), req.WithContext(gone))
	r.want(session.ID, sessions.Verified, sessions.NoReason)
}

func TestReturnThatComesTwiceAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	session, token := r.session()
	b := r.browser()
	back := b.back(token, "sailor_42", "sign-in")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { b.To(b.Get(back)) })
	}
	wg.Wait()
	r.want(session.ID, sessions.Verified, sessions.NoReason)
	// The provider refuses a code it has seen, which would show as failure.
	if r.outcomes("verified") != 1 || r.outcomes("trouble") != 0 {
		t.Errorf("the code was posted more than once:\n%s", r.log)
	}
}

func TestTabsThatFinishTogether(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	session, token := r.session()
	b := r.browser()
	var backs []string
	for i := range 4 {
		backs = append(backs, b.back(token, "sailor_42", []string{"sign-in", "decline"}[i%2]))
	}
	ends := make([]answer, len(backs))
	var wg sync.WaitGroup
	for i, back := range backs {
		wg.Go(func() { ends[i] = b.Follow(b.Get(back)) })
	}
	wg.Wait()
	v, err := r.store.Read(t.Context(), session.ID)
	if err != nil || v.State != sessions.Verified && v.State != sessions.Failed {
		t.Fatalf("session: %v, %v", v.State, err)
	}
	heading := map[sessions.State]string{sessions.Verified: headingVerified,
		sessions.Failed: headingNotVerified}[v.State]
	for _, end := range ends {
		end.WantPage(t, http.StatusOK, heading) // all of them show the one outcome
	}
	if n := r.sequences()["COMPLETIONS"]; n != 1 {
		t.Errorf("%d completions, want 1", n)
	}
	other := map[sessions.State]string{sessions.Verified: "failed", sessions.Failed: "verified"}[v.State]
	for line := range strings.Lines(r.log.String()) {
		if strings.Contains(line, `"outcome":"`+other+`"`) &&
			!strings.Contains(line, `"standing":"`+string(v.State)+`"`) {
			t.Errorf("a verdict that came too late does not say so: %s", line)
		}
	}
}

func TestSecondNetwork(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{networks: 3})
	session, token := r.session()
	b := r.browser()
	page := b.Get(b.page(token))
	if n := strings.Count(page.Body, "Continue with "); n != 3 {
		t.Errorf("%d buttons, want 3", n)
	}
	to := b.To(b.Post(r.base+"/signin", url.Values{
		"session": {token.Reveal()}, "action": {"continue"}, "network": {"second"},
	}))
	back := b.signIn(to, "sailor_42", "sign-in")
	if !strings.HasPrefix(back, r.base+"/signin/second/callback?") {
		t.Fatalf("returns to %q", back)
	}
	b.Follow(b.Get(back)).WantPage(t, http.StatusOK, headingVerified)
	if v, err := r.store.Read(t.Context(), session.ID); err != nil || v.Network != "second" {
		t.Errorf("network %q, %v", v.Network, err)
	}
}

func TestExpiry(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	session, token := r.session()
	b := r.browser()
	back := b.back(token, "sailor_42", "sign-in")
	r.clock.advance(sessions.Lifetime - 90*time.Second)
	if page := b.Get(b.page(token)); !strings.Contains(page.Body,
		"1</bdi> minute after this page was opened") {
		t.Errorf("time left:\n%s", page.Body)
	}
	r.clock.advance(time.Minute)
	if page := b.Get(b.page(token)); !strings.Contains(page.Body,
		"less than a minute after this page was opened") {
		t.Errorf("time left:\n%s", page.Body)
	}
	r.clock.advance(31 * time.Second)
	const expired = "This link has expired"
	b.Get(b.page(token)).WantPage(t, http.StatusGone, expired)
	b.Follow(b.Get(back)).WantPage(t, http.StatusGone, expired)
	for _, action := range []string{"continue", "decline"} {
		form := url.Values{"session": {token.Reveal()}, "action": {action}, "network": {"example"}}
		b.Follow(b.Post(r.base+"/signin", form)).WantPage(t, http.StatusGone, expired)
	}
	r.want(session.ID, sessions.Expired, sessions.ExpiredReason)
	if !strings.Contains(b.Get(b.page(token)).Body, "Ask <bdi>Harbor Guild</bdi> for a new one.") {
		t.Error("the page does not say what to do")
	}
}

func TestCanceled(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	session, token := r.session()
	b := r.browser()
	back := b.back(token, "sailor_42", "sign-in")
	if _, err := r.store.Complete(t.Context(), session, sessions.Outcome{
		State: sessions.Canceled, Reason: sessions.CanceledReason,
	}); err != nil {
		t.Fatal(err)
	}
	before := r.sequences()
	b.Follow(b.Get(back)).WantPage(t, http.StatusOK, "No longer needed")
	if !maps.Equal(before, r.sequences()) || r.outcomes("late") != 1 {
		t.Errorf("a return for a session that has ended went on; log:\n%s", r.log)
	}
	r.want(session.ID, sessions.Canceled, sessions.CanceledReason)
}

func mustQuery(tb testing.TB, address string) url.Values {
	tb.Helper()
	u, err := url.Parse(address)
	if err != nil {
		tb.Fatal(err)
	}
	return u.Query()
}
