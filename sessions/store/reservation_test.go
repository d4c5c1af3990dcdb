package store_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"verifyd/natsconf"
	"verifyd/natsconf/crashpoint"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/store"
)

func keyed(key string) store.IdempotencyKey {
	return store.IdempotencyKey{
		Account: request.Account, Key: key, Fingerprint: sha256.Sum256([]byte("body")),
	}
}

func TestReservationLeadsToOneSession(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.clock.stop()
	reservation, err := h.store.Reserve(t.Context(), keyed("k"))
	if err != nil || reservation.Session != nil {
		t.Fatalf("first = %+v, %v", reservation, err)
	}
	if _, err := h.store.Reserve(t.Context(), keyed("k")); !errors.Is(err, store.ErrInProgress) {
		t.Errorf("while it goes on: %v", err)
	}
	s, made, err := h.store.Commit(t.Context(), reservation, request)
	if err != nil || !made {
		t.Fatal(made, err)
	}
	for _, reserve := range []func(context.Context, store.IdempotencyKey) (store.Reservation, error){
		newStore(t, h).Reserve, newStore(t, h).FindReserved,
	} {
		again, err := reserve(t.Context(), keyed("k"))
		if err != nil || again.Session == nil || again.Session.ID != s.ID ||
			again.Token != reservation.Token {
			t.Errorf("again = %+v, %v", again, err)
		}
	}
	other := keyed("k")
	other.Fingerprint[0]++
	if _, err := h.store.Reserve(t.Context(), other); !errors.Is(err, store.ErrKeyReused) {
		t.Errorf("another request: %v", err)
	}
	for name, k := range map[string]store.IdempotencyKey{
		"another account": {Account: "acc_b", Key: "k", Fingerprint: other.Fingerprint},
		"a test key":      {Account: request.Account, Test: true, Key: "k", Fingerprint: other.Fingerprint},
	} {
		if reservation, err := h.store.Reserve(t.Context(), k); err != nil ||
			reservation.Session != nil {
			t.Errorf("%s: %+v, %v", name, reservation, err)
		}
	}
}

// An owner that dies before its session is created, one that dies after it, and one that was only slow.
func TestReservationOfAVanishedOwner(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.clock.stop()
	slow, err := h.store.Reserve(t.Context(), keyed("k"))
	if err != nil {
		t.Fatal(err)
	}
	h.clock.Advance(5*time.Second + time.Millisecond)
	next, err := newStore(t, h).Reserve(t.Context(), keyed("k"))
	if err != nil || next.Session != nil {
		t.Fatalf("taken over = %+v, %v", next, err)
	}
	first, made, err := h.store.Commit(t.Context(), next, request)
	if err != nil || !made {
		t.Fatal(made, err)
	}
	h.clock.Advance(time.Second)
	second, made, err := h.store.Commit(t.Context(), slow, request)
	if err != nil || made || second != first {
		t.Errorf("the slow owner: %+v, made %v, %v; want %+v", second, made, err, first)
	}
	if err := h.store.Release(t.Context(), slow); !errors.Is(err, store.ErrTakenOver) {
		t.Errorf("released by the slow owner: %v", err)
	}
	h.clock.Advance(5 * time.Second)
	again, err := h.store.Reserve(t.Context(), keyed("k"))
	if err != nil || again.Session == nil || *again.Session != first {
		t.Errorf("again = %+v, %v", again, err)
	}
}

// A reservation lasts as long as its entry, which the server removes, and not by the clock of a process.
func TestReservationLastsAsLongAsItsEntry(t *testing.T) {
	t.Parallel()
	h := start(t)
	reservation, err := h.store.Reserve(t.Context(), keyed("k"))
	if err != nil {
		t.Fatal(err)
	}
	s, _, err := h.store.Commit(t.Context(), reservation, request)
	if err != nil {
		t.Fatal(err)
	}
	for _, ahead := range []time.Duration{topology.IdempotencyTTL, 8 * 24 * time.Hour} {
		h.clock.Advance(ahead)
		again, err := h.store.Reserve(t.Context(), keyed("k"))
		if err != nil || again.Session == nil || again.Session.ID != s.ID {
			t.Errorf("%s later by the clock of a process: %+v, %v", ahead, again, err)
		}
	}
	// as the server does after ten minutes
	if err := h.conn.Purge(t.Context(), topology.BucketStream(topology.BucketIdempotency), ">"); err != nil {
		t.Fatal(err)
	}
	next, err := h.store.Reserve(t.Context(), keyed("k"))
	if err != nil || next.Session != nil || next.Token == reservation.Token {
		t.Errorf("without an entry: %+v, %v", next, err)
	}
}

func TestReleasedReservationStartsOver(t *testing.T) {
	t.Parallel()
	h := start(t)
	reservation, err := h.store.Reserve(t.Context(), keyed("k"))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.store.Release(t.Context(), reservation); err != nil {
		t.Fatal(err)
	}
	if _, err := h.store.FindReserved(t.Context(), keyed("k")); !errors.Is(err, store.ErrNotStarted) {
		t.Errorf("a look: %v", err)
	}
	other := keyed("k")
	other.Fingerprint[0]++ // nothing is stored for the first request, so the key may be used for another
	next, err := h.store.Reserve(t.Context(), other)
	if err != nil || next.Session != nil || next.Token == reservation.Token {
		t.Errorf("next = %+v, %v", next, err)
	}
}

func TestManyReserveOneKey(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.clock.stop()
	stores := []*store.Store{h.store, newStore(t, h)}
	var mu sync.Mutex
	won := map[sessions.Token]int{}
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			reservation, err := stores[i%2].Reserve(t.Context(), keyed("k"))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				won[reservation.Token]++
			case !errors.Is(err, store.ErrInProgress):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(won) != 1 {
		t.Errorf("%d tokens, want 1", len(won))
	}
	for _, n := range won {
		if n != 1 {
			t.Errorf("%d owners, want 1", n)
		}
	}
}

func TestStoredReservationHoldsNeitherTokenNorKey(t *testing.T) {
	t.Parallel()
	h := start(t)
	reservation, err := h.store.Reserve(t.Context(), keyed("planted-key"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := h.conn.Last(t.Context(), topology.BucketStream(topology.BucketIdempotency),
		topology.BucketSubject(topology.BucketIdempotency, ">"))
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{reservation.Token.Reveal(), "planted-key"} {
		if strings.Contains(m.Subject+string(m.Data), secret) {
			t.Errorf("%q stands in %s %s", secret, m.Subject, m.Data)
		}
	}
}

// An owner that has taken over a reservation and gives up leaves the reservation with its token: the previous
// owner, which was only slow, may still create the session, and one key leads to one session.
func TestReservationThatWasTakenOverIsNotReleased(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.clock.stop()
	slow, err := h.store.Reserve(t.Context(), keyed("k"))
	if err != nil {
		t.Fatal(err)
	}
	h.clock.Advance(5*time.Second + time.Millisecond)
	other := newStore(t, h)
	second, err := other.Reserve(t.Context(), keyed("k"))
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Release(t.Context(), second); err != nil { // it was over its quota
		t.Fatal(err)
	}
	first, made, err := h.store.Commit(t.Context(), slow, request)
	if err != nil || !made {
		t.Fatal(made, err)
	}
	again, err := other.Reserve(t.Context(), keyed("k"))
	if err != nil || again.Session == nil || again.Session.ID != first.ID {
		t.Errorf("one key leads to %+v, %v, and to %s", again, err, first.ID)
	}
}

// A reservation whose write was not answered may be stored later. Once it is released it cannot be: whoever
// has released it knows that nobody finds it, also if it replaces one that was released before.
func TestReleaseOfAnUnansweredReservation(t *testing.T) {
	h := start(t)
	replaces := reserve(t, h.store, keyed("replaces"))
	if err := h.store.Release(t.Context(), replaces); err != nil {
		t.Fatal(err)
	}
	for key, unanswered := range map[string]int{"new": 1, "replaces": 2} {
		writer := natsconf.NewWriter(h.conn, topology.BucketStream(topology.BucketIdempotency))
		stop := natstest.Serve(t, writer)
		writes := 0
		crashpoint.Hook(func(point string) {
			if point == crashpoint.BeforeReservation {
				if writes++; writes == unanswered {
					stop() // from here on nothing reaches the stream
				}
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		slow := store.New(store.Config{Conn: h.conn, Key: h.key, Now: h.clock.Now, Idempotency: writer})
		r, err := slow.Reserve(ctx, keyed(key))
		cancel()
		crashpoint.Hook(nil)
		if !errors.Is(err, natsconf.ErrUncertain) || r.Token == "" {
			t.Fatalf("%s: reserved %+v, %v", key, r, err)
		}
		if err := h.store.Release(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		natstest.Serve(t, writer)() // what waits there is published
		if r, err := h.store.FindReserved(t.Context(), keyed(key)); !errors.Is(err, store.ErrNotStarted) {
			t.Errorf("%s: it is stored after its release: %+v, %v", key, r, err)
		}
	}
}

// A release leaves a reservation that another owner has taken over; where others have made one of their own,
// nothing is left of it.
func TestReleaseKnowsWhoseAReservationIs(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.clock.stop()
	slow := reserve(t, h.store, keyed("k"))
	h.clock.Advance(5*time.Second + time.Millisecond)
	if _, err := h.store.FindReserved(t.Context(), keyed("k")); !errors.Is(err, store.ErrNotStarted) {
		t.Errorf("found: %v", err)
	}
	taken, err := newStore(t, h).TakeOver(t.Context(), keyed("k"))
	if err != nil || taken.Session != nil || !taken.TakenOver || taken.Token != slow.Token {
		t.Errorf("taken over = %+v, %v", taken, err)
	}
	if _, err := h.store.TakeOver(t.Context(), keyed("k")); !errors.Is(err, store.ErrInProgress) {
		t.Errorf("taken over at once again: %v", err)
	}
	if _, err := h.store.TakeOver(t.Context(), keyed("none")); !errors.Is(err, store.ErrNotStarted) {
		t.Errorf("taken over from nobody: %v", err)
	}
	// before the session is there
	if err := h.store.Release(t.Context(), slow); !errors.Is(err, store.ErrTakenOver) {
		t.Errorf("released: %v", err)
	}
	s, made, err := newStore(t, h).Commit(t.Context(), taken, request)
	if err != nil || !made {
		t.Fatal(made, err)
	}
	if r, err := h.store.Reserve(t.Context(), keyed("k")); err != nil || r.Session == nil ||
		r.Session.ID != s.ID {
		t.Errorf("reserved again = %+v, %v; want the session", r, err)
	}
	first := reserve(t, h.store, keyed("other"))
	if err := h.store.Release(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if r := reserve(t, newStore(t, h), keyed("other")); r.TakenOver || r.Token == first.Token {
		t.Errorf("after a release = %+v", r)
	}
	if err := h.store.Release(t.Context(), first); err != nil {
		t.Errorf("released once more: %v", err)
	}
	if _, err := h.store.Reserve(t.Context(), keyed("other")); !errors.Is(err, store.ErrInProgress) {
		t.Errorf("the others' reservation was released, too: %v", err)
	}
}

func reserve(t *testing.T, st *store.Store, k store.IdempotencyKey) store.Reservation {
	t.Helper()
	r, err := st.Reserve(t.Context(), k)
	if err != nil || r.Session != nil {
		t.Fatalf("reserved %+v, %v", r, err)
	}
	return r
}
