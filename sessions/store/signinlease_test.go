package store_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/lists"
	"verifyd/sessions/store"
)

// One browser holds the lease of a session, on any edge; another gets it when the first gave up or its time
// is over.
func TestSignInLease(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.clock.stop()
	other := newStore(t, h) // another edge
	s, _ := h.create(t)
	if held, err := other.LeaseOf(t.Context(), s.ID); err != nil || held != (sessions.SignInLease{}) {
		t.Fatalf("before anybody pressed: %+v, %v", held, err)
	}
	take := func(st *store.Store, browser string, want error) sessions.SignInLease {
		t.Helper()
		held, err := st.AcquireLease(t.Context(), s.ID, browser)
		if !errors.Is(err, want) {
			t.Fatalf("%s: err = %v, want %v", browser, err, want)
		}
		return held
	}
	take(h.store, "a", nil)
	if held := take(other, "b", store.ErrLeaseHeld); held.Browser != "a" ||
		!held.HeldByOther("b", h.clock.Now()) || held.HeldByOther("a", h.clock.Now()) {
		t.Errorf("what stands: %+v", held)
	}
	h.clock.Advance(sessions.LeaseDuration - time.Second)
	take(other, "b", store.ErrLeaseHeld)
	take(other, "a", nil) // another press of its own, which restarts the time
	h.clock.Advance(sessions.LeaseDuration - time.Second)
	take(h.store, "b", store.ErrLeaseHeld)
	h.clock.Advance(2 * time.Second)
	take(h.store, "b", nil)
	held := take(other, "a", store.ErrLeaseHeld)
	if !held.TakenOverFrom("a") || held.TakenOverFrom("b") {
		t.Errorf("who lost it: %+v", held)
	}
	if err := h.store.ReleaseLease(t.Context(), s.ID, "a"); err != nil { // not its own any more
		t.Fatal(err)
	}
	take(other, "a", store.ErrLeaseHeld)
	for range 2 {
		if err := other.ReleaseLease(t.Context(), s.ID, "b"); err != nil {
			t.Fatal(err)
		}
	}
	if held, err := h.store.LeaseOf(t.Context(), s.ID); err != nil || !held.Released ||
		held.TakenOverFrom("a") {
		t.Errorf("given up: %+v, %v", held, err)
	}
	take(h.store, "a", nil)
	if v, err := h.store.Read(t.Context(), s.ID); err != nil || v.State != sessions.Pending {
		t.Errorf("the session beside its seat: %v, %v", v.State, err)
	}
}

// Twenty browsers press at once on two edges: one gets the lease, and every other learns which.
func TestSignInLeaseRace(t *testing.T) {
	t.Parallel()
	h := start(t)
	edges := []*store.Store{h.store, newStore(t, h)}
	s, _ := h.create(t)
	var mu sync.Mutex
	var won []string
	told := map[string]bool{}
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			browser := string(rune('a' + i))
			held, err := edges[i%2].AcquireLease(t.Context(), s.ID, browser)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				won = append(won, browser)
			case errors.Is(err, store.ErrLeaseHeld):
				told[held.Browser] = true
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	if len(won) != 1 || len(told) != 1 || !told[won[0]] {
		t.Errorf("won by %v, the others were told of %v", won, told)
	}
}

// A lease is removed with its session; it is no session, and no list shows it.
func TestSignInLeaseIsNoSession(t *testing.T) {
	t.Parallel()
	h := start(t)
	s, _ := h.create(t)
	if _, err := h.store.AcquireLease(t.Context(), s.ID, "a"); err != nil {
		t.Fatal(err)
	}
	m, err := h.conn.Last(t.Context(), topology.BucketStream(topology.BucketSessions),
		"$KV.sessions.seat.browser."+string(s.ID))
	if err != nil || m.Header.Get("Nats-TTL") != "10m0s" {
		t.Errorf("stored as %+v, %v", m, err)
	}
	page, err := h.store.List(t.Context(), lists.Query{Account: s.Account, Limit: 10})
	if err != nil || len(page.Sessions) != 1 {
		t.Errorf("%d sessions, %v", len(page.Sessions), err)
	}
}

// Without the store nobody gets a lease, and the error says why.
func TestSignInLeaseWithoutTheStore(t *testing.T) {
	t.Parallel()
	conn, away := natstest.StartIn(t, t.TempDir())
	h := fixture{conn: conn, clock: &clock{}}
	h.store = newStore(t, h)
	s, _ := h.create(t)
	away()
	if _, err := h.store.AcquireLease(t.Context(), s.ID, "a"); !errors.Is(err, natsconf.ErrUnavailable) {
		t.Errorf("err = %v, want ErrUnavailable", err)
	}
}
