package signin_test

import (
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"verifyd/edge/places"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
)

// The server that leads the sessions and that this edge is connected to vanishes silently while people view
// pages, press and return: each waits for the right page, and no code is used twice.
func TestPeopleOutlastTheLeader(t *testing.T) {
	t.Parallel()
	trio := natstest.StartTrio(t)
	first := trio.Connect(t)
	natstest.Ensure(t, first)
	leader := natstest.Leader(t, first, topology.BucketStream(topology.BucketSessions))
	r := newRig(t, setup{on: trio.Connect(t, leader)})
	const people = 6
	type person struct {
		*browser

		session sessions.Session
		token   sessions.Token
		back    string
	}
	var looks, presses, returns []person
	for i := range people {
		for _, kind := range []*[]person{&looks, &presses, &returns} {
			session, token := r.session()
			p := person{browser: r.browser(), session: session, token: token}
			switch kind {
			case &presses:
				p.Get(p.page(token))
			case &returns:
				p.back = p.browser.back(token, fmt.Sprint("sailor_", i), "sign-in")
			}
			*kind = append(*kind, p)
		}
	}
	trio.Freeze(t, leader)
	began := time.Now()
	var crowd sync.WaitGroup
	for i := range people {
		crowd.Go(func() {
			looks[i].Get(looks[i].page(looks[i].token)).WantPage(t, http.StatusOK, headingAsk)
		})
		crowd.Go(func() {
			if a := presses[i].continues(presses[i].token); a.Status != http.StatusSeeOther {
				t.Errorf("a press: %d\n%s", a.Status, a.Body)
			}
		})
		crowd.Go(func() {
			p := returns[i]
			p.Follow(p.Get(p.back)).WantPage(t, http.StatusOK, headingVerified)
		})
	}
	crowd.Wait()
	t.Logf("the last of %d had a page after %.1f s", 3*people, time.Since(began).Seconds())
	for _, p := range returns {
		r.want(p.session.ID, sessions.Verified, sessions.NoReason)
	}
	if n := r.outcomes("verified"); n != people {
		t.Errorf("%d returns were judged, want %d", n, people)
	}
}

// A press that waits for its network's metadata takes no place of those who wait for the store.
func TestHangingNetworkTakesNoPlaceOfTheStore(t *testing.T) {
	t.Parallel()
	evil := newEvil(t)
	evil.hold = make(chan struct{})
	r := newRig(t, setup{evil: evil, waiting: places.NewWaiting(places.MaxStoreWait, 1)})
	_, token := r.session()
	_, other := r.session()
	waits, b := r.browser(), r.browser()
	waits.Get(waits.page(token))
	pressed := make(chan answer)
	go func() {
		pressed <- waits.Post(r.base+"/signin", url.Values{
			"session": {token.Reveal()}, "action": {"continue"}, "network": {"evil"},
		})
	}()
	for late := time.Now().Add(2 * time.Second); time.Now().Before(late); { // a place counts after a second
		b.Get(b.page(other)).WantPage(t, http.StatusOK, headingAsk)
	}
	<-evil.hold
	if a := <-pressed; a.Status != http.StatusSeeOther {
		t.Errorf("the press: %d\n%s", a.Status, a.Body)
	}
}

// While the maximum waits, a page and a return are refused at once, and the attempt is not spent.
func TestNoPlaceToWait(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{waiting: places.NewWaiting(time.Second, 1)})
	session, token := r.session()
	b := r.browser()
	back := b.back(token, "sailor_42", "sign-in")
	_, done, err := r.setup.waiting.Begin(t.Context(), places.Request{})
	if err != nil {
		t.Fatal(err)
	}
	natstest.Await(t, "that place is one of who waits", func() bool {
		_, free, err := r.setup.waiting.Begin(t.Context(), places.Request{})
		if err == nil {
			free()
		}
		return err != nil
	})
	for name, a := range map[string]answer{
		"page": b.Get(b.page(token)), "press": b.continues(token), "return": b.Get(back),
	} {
		a.WantPage(t, http.StatusServiceUnavailable, "One moment, please")
		if a.Header.Get("Retry-After") != "5" {
			t.Errorf("%s: Retry-After %q", name, a.Header.Get("Retry-After"))
		}
	}
	done()
	b.Follow(b.Get(back)).WantPage(t, http.StatusOK, headingVerified)
	r.want(session.ID, sessions.Verified, sessions.NoReason)
}
