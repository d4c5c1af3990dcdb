package signin_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"verifyd/sessions"
)

const headingOften = "Too many tries"

// pressAt presses the button of a network.
func (b *browser) pressAt(token sessions.Token, network string) answer {
	b.t.Helper()
	return b.Post(b.r.base+"/signin", url.Values{
		"session": {token.Reveal()}, "action": {"continue"}, "network": {network},
	})
}

// wait reads how long a refused browser is asked to wait: the page and Retry-After say the same.
func wait(t *testing.T, a answer) time.Duration {
	t.Helper()
	seconds, err := strconv.Atoi(a.Header.Get("Retry-After"))
	if err != nil || seconds < 1 || !strings.Contains(a.Text(), fmt.Sprintf("Wait %d second", seconds)) {
		t.Errorf("Retry-After %q, page:\n%s", a.Header.Get("Retry-After"), a.Text())
	}
	return time.Duration(seconds) * time.Second
}

// Start, junk return, repeat, with one link: it is refused before the store or the network is used, and works
// again once the wait is over.
func TestLoopWithOneLinkIsStopped(t *testing.T) {
	t.Parallel()
	e := newEvil(t)
	r := newRig(t, setup{evil: e, counted: true})
	r.clock.stop()
	session, token := r.session()
	b := r.browser()
	b.Get(b.page(token))
	const most = 20
	var before uint64
	for i := range 200 {
		if i == most {
			before = r.sequences()["KV_sessions"]
		}
		a := b.pressAt(token, "evil")
		if i >= most {
			a.WantPage(t, http.StatusTooManyRequests, headingOften)
			if wait(t, a) != 30*time.Second {
				t.Fatalf("press %d has to wait %s", i, wait(t, a))
			}
			continue
		}
		state := mustQuery(t, b.To(a)).Get("state")
		b.To(b.Get(r.base + "/signin/evil/callback?code=junk&state=" + state))
	}
	if n := e.posts.Load(); n != most {
		t.Errorf("the network got %d codes, want %d", n, most)
	}
	if after := r.sequences()["KV_sessions"]; after != before {
		t.Errorf("the store took %d writes of refused presses", after-before)
	}
	_, entries, err := r.store.Timeline(t.Context(), session.ID)
	if err != nil || len(entries) > 4*most+10 {
		t.Errorf("the timeline has %d entries, %v", len(entries), err)
	}
	r.clock.advance(30 * time.Second)
	b.To(b.pressAt(token, "evil"))
	r.want(session.ID, sessions.Pending, sessions.NoReason)
}

// The same with any number of links: the failed requests to a network on behalf of an address are bounded,
// and so is what it has stored.
func TestLoopWithManyLinksIsStopped(t *testing.T) {
	t.Parallel()
	e := newEvil(t)
	r := newRig(t, setup{evil: e})
	r.clock.stop()
	refused := 0
	for range 15 {
		_, token := r.session()
		b := r.browser()
		b.Get(b.page(token))
		for range 15 {
			state := mustQuery(t, b.To(b.pressAt(token, "evil"))).Get("state")
			if a := b.Get(r.base + "/signin/evil/callback?code=junk&state=" +
				state); a.Status == http.StatusTooManyRequests {
				refused++
			}
		}
	}
	if n := e.posts.Load(); n != 120 || refused != 15*15-120 {
		t.Errorf("the network got %d codes, want 120; %d returns were refused", n, refused)
	}
}

// A return that has to wait loses nothing: the same address works once the wait is over.
func TestReturnThatHasToWaitCountsLater(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	r.clock.stop()
	session, token := r.session()
	b := r.browser()
	back := b.back(token, "sailor_42", "sign-in")
	replayed := b.back(token, "x", "error")
	for range 20 {
		b.Get(replayed)
	}
	a := b.Get(back)
	a.WantPage(t, http.StatusTooManyRequests, headingOften)
	if !strings.Contains(a.Body, `href="?`) {
		t.Errorf("the page does not lead to the same return:\n%s", a.Body)
	}
	r.want(session.ID, sessions.Pending, sessions.NoReason)
	r.clock.advance(wait(t, a))
	b.Follow(b.Get(back)).WantPage(t, http.StatusOK, headingVerified)
}

// A school or a carrier has one address. Five hundred people there sign in at the same instant, and one in
// ten needs a second try.
func TestFiveHundredPeopleBehindOneAddress(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	r.clock.stop() // what arrives within a minute arrives at once here, which is harder
	people := make(chan int, 500)
	for i := range 500 {
		people <- i
	}
	close(people)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for i := range people {
				session, token := r.session(func(q *sessions.Request) {
					q.PlatformUserID = fmt.Sprint("pupil_", i)
				})
				b := r.browser()
				if i%10 == 0 {
					b.Get(b.back(token, "x", "error"))
				}
				b.Follow(b.Get(b.back(token, "pupil", "sign-in"))).WantPage(t, http.StatusOK, headingVerified)
				r.want(session.ID, sessions.Verified, sessions.NoReason)
				b.Client.CloseIdleConnections()
			}
		})
	}
	all.Wait()
}

// A user who has to wait sees that in their own language.
func TestTooOftenInEveryLanguage(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	r.clock.stop()
	_, token := r.session()
	b := r.browser()
	b.Get(b.page(token))
	for b.act(token, "stop").Status == http.StatusSeeOther {
	}
	headings := map[string]bool{}
	for _, lang := range languages(t) {
		a := b.Post(r.base+"/signin", url.Values{
			"session": {token.Reveal()}, "action": {"continue"}, "network": {"example"}, "lang": {lang},
		})
		if a.Status != http.StatusTooManyRequests || a.Header.Get("Retry-After") != "30" ||
			a.Header.Get("Content-Language") != lang || !strings.Contains(a.Text(), "30") {
			t.Errorf("%s: status %d, Retry-After %q, %s\n%s", lang, a.Status, a.Header.Get("Retry-After"),
				a.Header.Get("Content-Language"), a.Text())
		}
		_, heading, _ := strings.Cut(a.Body, "<h1>")
		heading, _, _ = strings.Cut(heading, "</h1>")
		headings[heading] = true
	}
	if len(headings) != len(languages(t)) {
		t.Errorf("headings: %v", headings)
	}
}
