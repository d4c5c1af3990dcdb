package signin_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/store"
)

const (
	headingElsewhere = "Started in another browser"
	headingCookies   = "Your browser does not accept cookies"
	noteBegun        = "You started signing in with this browser"
	noteTakeover     = "A sign-in began in another browser a while ago"
	noteStopped      = "You stopped here"
)

// The first browser to press Continue owns the session; a second one is refused, however it tries, until the
// first stops.
func TestFirstBrowserOwnsTheSession(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	session, token := r.session()
	first, second := r.browser(), r.browser()
	second.Get(second.page(token)).WantPage(t, http.StatusOK, headingAsk)
	back := first.back(token, "sailor_42", "sign-in")
	before := r.sequences()
	for _, a := range []answer{
		second.Get(second.page(token)), second.continues(token), second.act(token, "decline"),
	} {
		a.WantPage(t, http.StatusConflict, headingElsewhere)
		a.Holds(t, "wait <bdi>2</bdi> minutes", "somebody else has your link", ">Look again</a>")
		if strings.Contains(a.Body, "<form") || strings.Contains(a.Body, "sailor_42") {
			t.Errorf("%s shows too much", a.At)
		}
	}
	if after := r.sequences(); after["KV_sessions"] != before["KV_sessions"] ||
		after["COMPLETIONS"] != before["COMPLETIONS"] {
		t.Errorf("the second browser wrote: %v, before %v", after, before)
	}
	second.Follow(second.act(token, "stop")) // not its own to give up
	second.Get(second.page(token)).WantPage(t, http.StatusConflict, headingElsewhere)

	ask := first.Get(first.page(token)) // Back, or another tab
	ask.WantPage(t, http.StatusOK, headingAsk)
	ask.Holds(t, noteBegun, `name="action" value="stop">Stop here</button>`)
	stopped := first.Follow(first.act(token, "stop"))
	stopped.WantPage(t, http.StatusOK, headingAsk)
	stopped.Holds(t, noteStopped)
	if strings.Contains(stopped.Body, `value="stop"`) {
		t.Error("what was stopped can be stopped")
	}
	taken := second.press(token)
	first.Get(first.page(token)).WantPage(t, http.StatusConflict, headingElsewhere)
	// The first one's return comes too late: it is no verdict, and its code is not posted.
	first.Follow(first.Get(back)).WantPage(t, http.StatusConflict, headingElsewhere)
	r.want(session.ID, sessions.Pending, sessions.NoReason)
	if r.outcomes("superseded") != 1 {
		t.Errorf("log:\n%s", r.log)
	}
	second.Follow(second.Get(second.signIn(taken, "sailor_42", "sign-in"))).
		WantPage(t, http.StatusOK, headingVerified)
	first.Get(first.page(token)).WantPage(t, http.StatusOK, headingVerified)
}

// After two minutes another browser may continue, and its page says what that means for the first.
func TestTakingOverAfterTwoMinutes(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	session, token := r.session()
	first, second := r.browser(), r.browser()
	back := first.back(token, "sailor_42", "sign-in")
	r.clock.advance(sessions.LeaseDuration - 30*time.Second)
	second.Get(second.page(token)).Holds(t, "wait <bdi>1</bdi> minute and")
	r.clock.advance(31 * time.Second)
	ask := second.Get(second.page(token))
	ask.WantPage(t, http.StatusOK, headingAsk)
	ask.Holds(t, noteTakeover)
	// Until somebody does, the first one's return counts.
	to := second.press(token)
	first.Follow(first.Get(back)).WantPage(t, http.StatusConflict, headingElsewhere)
	second.Get(second.signIn(to, "sailor_42", "sign-in"))
	r.want(session.ID, sessions.Verified, sessions.NoReason)
}

func TestLateReturnCountsUntilAnotherBrowserTakesOver(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	_, token := r.session()
	b := r.browser()
	back := b.back(token, "sailor_42", "sign-in")
	r.clock.advance(sessions.LeaseDuration + time.Minute)
	b.Follow(b.Get(back)).WantPage(t, http.StatusOK, headingVerified)
}

// A browser that returns with a failure, or could not leave at all, blocks no other.
func TestTroubleFreesTheSession(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	_, token := r.session()
	first, second := r.browser(), r.browser()
	first.Get(first.back(token, "x", "error"))
	second.Get(second.page(token)).WantPage(t, http.StatusOK, headingAsk)
	back := second.back(token, "x", "sign-in")
	r.stopProvider()
	second.Get(back)
	first.Get(first.page(token)).WantPage(t, http.StatusOK, headingAsk)
}

// Many tabs of one browser are one browser, whichever of them ends first.
func TestTabsOfOneBrowser(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	session, token := r.session()
	b := r.browser()
	var backs []string
	for range 4 {
		backs = append(backs, b.back(token, "sailor_42", "sign-in"))
	}
	b.Get(b.page(token)).WantPage(t, http.StatusOK, headingAsk)
	b.Follow(b.Get(backs[2])).WantPage(t, http.StatusOK, headingVerified)
	b.Follow(b.Get(backs[0])).WantPage(t, http.StatusOK, headingVerified)
	r.want(session.ID, sessions.Verified, sessions.NoReason)
}

// Two edges on one store keep a session for one browser.
func TestOwnerOverTwoEdges(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	other := r.beside()
	_, token := r.session()
	first, second := r.browser(), other.browser()
	first.press(token)
	second.Get(second.page(token)).WantPage(t, http.StatusConflict, headingElsewhere)
	second.continues(token).WantPage(t, http.StatusConflict, headingElsewhere)
}

// A browser without cookies learns that at the press, before any provider is asked, with a way to continue.
// Declining needs none.
func TestCookiesBlocked(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{prefix: "/v", tls: true})
	session, token := r.session()
	b := r.browser()
	b.Client.Jar = nil
	if page := b.Get(b.page(token)); !strings.HasPrefix(page.Header.Get("Set-Cookie"),
		"__Secure-verifyd_browser=") {
		t.Errorf("the page set %q", page.Header.Get("Set-Cookie"))
	}
	a := b.continues(token)
	a.WantPage(t, http.StatusBadRequest, headingCookies)
	a.Holds(t, "Allow cookies for this site", `href="/v/?session=`+token.Reveal()+`">Try again</a>`)
	if a.Header.Get("Set-Cookie") != "" {
		t.Error("a press that was refused set a cookie")
	}
	if lease, err := r.store.LeaseOf(t.Context(), session.ID); err != nil || lease.Browser != "" {
		t.Errorf("it holds the session: %+v, %v", lease, err)
	}
	b.Follow(b.act(token, "decline")).WantPage(t, http.StatusOK, headingNotVerified)
}

// The cookie that identifies a browser holds no data, is sent only to this service, and is renewed by each
// view of a page.
func TestBrowserCookie(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]setup{
		"plain": {}, "https": {tls: true}, "https and prefix": {tls: true, prefix: "/v"},
	} {
		prefix := map[string]string{"plain": "", "https": "__Host-", "https and prefix": "__Secure-"}[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, s)
			session, token := r.session()
			b := r.browser()
			var values []string
			for range 2 {
				c, err := http.ParseSetCookie(b.Get(b.page(token)).Header.Get("Set-Cookie"))
				if err != nil {
					t.Fatal(err)
				}
				if c.Path != s.prefix+"/" || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode ||
					c.Secure != s.tls || c.MaxAge != 1200 || c.Domain != "" ||
					c.Name != prefix+"verifyd_browser" {
					t.Errorf("attributes: %s", c)
				}
				values = append(values, c.Value)
			}
			if values[0] != values[1] || len(values[0]) != 26 {
				t.Errorf("values %q", values)
			}
			b.press(token)
			if lease, err := r.store.LeaseOf(t.Context(), session.ID); err != nil || lease.Browser == "" ||
				strings.Contains(values[0], lease.Browser) {
				t.Errorf("the store holds %+v, %v", lease, err)
			}
			forged := b.Request(http.MethodGet, b.page(token), "")
			forged.Header.Set("Cookie",
				"verifyd_browser=<b>; __Secure-verifyd_browser=short; __Host-verifyd_browser=short")
			if a := r.browser().Do(forged); strings.Contains(a.Header.Get("Set-Cookie"), "<b>") ||
				strings.Contains(a.Header.Get("Set-Cookie"), "short") {
				t.Errorf("a value that is not of our make is kept: %s", a.Header.Get("Set-Cookie"))
			}
		})
	}
}

// beside is a second edge on the same store and keys, with the same identity network.
func (r *rig) beside() *rig {
	r.t.Helper()
	other := *r
	other.store = store.New(store.Config{
		Conn: r.conn, Key: r.key, Now: r.clock.Now,
		Pending:     natstest.Writer(r.t, r.conn, topology.BucketStream(topology.BucketSessions)),
		Completions: natstest.Writer(r.t, r.conn, topology.StreamCompletions),
	})
	other.serve()
	return &other
}
