package signin_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"verifyd/edge/places"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/storestate"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
)

var againForm = regexp.MustCompile(`class="button main" href="([^"]*)"`)

func TestJetStreamAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{waiting: places.NewWaiting(500*time.Millisecond, 10)})
	_, token := r.session()
	b := r.browser()
	back := b.back(token, "sailor_42", "sign-in")
	r.away()
	form := func(action string) url.Values {
		return url.Values{"session": {token.Reveal()}, "action": {action}, "network": {"example"}}
	}
	for name, a := range map[string]answer{
		"page":     b.Get(b.page(token)),
		"continue": b.Post(r.base+"/signin", form("continue")),
		"decline":  b.Post(r.base+"/signin", form("decline")),
		"return":   b.Get(back),
	} {
		t.Run(name, func(t *testing.T) {
			a.WantPage(t, http.StatusServiceUnavailable, "One moment, please")
			if a.Header.Get("Retry-After") != "5" || a.Header.Get("Set-Cookie") != "" {
				t.Errorf("headers: %v", a.Header)
			}
			way := r.page(token)
			if name == "return" { // the attempt is not spent: the same return may continue
				way = back
			}
			if m := againForm.FindStringSubmatch(a.Body); m == nil ||
				b.Resolve(a.At, html.UnescapeString(m[1])) != way {
				t.Errorf("the way on is %q, want %q", m, way)
			}
		})
	}
}

// It is unknown whether the verdict was stored: the page says that, and not that it worked.
func TestUncertainEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{deaf: true})
	r.handler.SetCompleteWithin(50 * time.Millisecond)
	session, token := r.session()
	b := r.browser()
	for name, a := range map[string]answer{
		"return":  b.Get(b.back(token, "sailor_42", "sign-in")),
		"decline": b.Post(r.base+"/signin", url.Values{"session": {token.Reveal()}, "action": {"decline"}}),
	} {
		t.Run(name, func(t *testing.T) {
			page := b.Follow(a)
			page.WantPage(t, http.StatusOK, headingAsk)
			if !strings.Contains(page.Body, "could not confirm that your answer was saved") ||
				!strings.Contains(page.Body, ">Look again</a>") {
				t.Errorf("no notice:\n%s", page.Body)
			}
		})
	}
	r.want(session.ID, sessions.Pending, sessions.NoReason)
}

// A sealed store takes no verdict any more: it is offered once, however long a store is waited for, and the
// user reads that nothing was decided.
func TestSealedStore(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	r.handler.SetCompleteWithin(time.Hour)
	session, token := r.session()
	b := r.browser()
	if err := storestate.Seal(t.Context(), r.conn, topology.StreamCompletions,
		topology.BucketStream(topology.BucketSessions)); err != nil {
		t.Fatal(err)
	}
	answered := make(chan answer, 1)
	go func() {
		answered <- b.Post(r.base+"/signin", url.Values{"session": {token.Reveal()}, "action": {"decline"}})
	}()
	page := b.Follow(natstest.Receive(t, "the answer", answered))
	page.WantPage(t, http.StatusOK, headingAsk)
	if !strings.Contains(page.Body, "could not save your answer") {
		t.Errorf("no notice:\n%s", page.Body)
	}
	r.want(session.ID, sessions.Pending, sessions.NoReason)
}

// The unconfirmed verdict was stored after all: the clean page shows it.
func TestUncertainEndThatWasStored(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{deaf: true})
	r.handler.SetCompleteWithin(50 * time.Millisecond)
	session, token := r.session()
	b := r.browser()
	end := b.To(b.Post(r.base+"/signin", url.Values{"session": {token.Reveal()}, "action": {"decline"}}))
	r.listen()
	outcome := sessions.Outcome{State: sessions.Verified, Network: "example"}
	if c, err := r.store.Complete(t.Context(), session, outcome); err == nil ||
		c.State != sessions.Failed {
		t.Fatalf("the late verdict does not stand: %v, %v", c.State, err)
	}
	b.Get(end).WantPage(t, http.StatusOK, headingNotVerified)
}
