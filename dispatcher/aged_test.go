package dispatcher_test

import (
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/erasure"
	"verifyd/sessions/facts"
	"verifyd/sessions/lists"
	"verifyd/sessions/store"
)

// keepFor sets how long the facts are kept.
func (h *fixture) keepFor(t *testing.T, ages ...time.Duration) {
	t.Helper()
	s, err := h.conn.JS.Stream(t.Context(), topology.StreamCompletions)
	if err != nil {
		t.Fatal(err)
	}
	for _, age := range ages {
		c := s.CachedInfo().Config
		c.MaxAge, c.Duplicates = age, time.Second
		if s, err = h.conn.JS.UpdateStream(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
}

// behindOne runs a dispatcher that has one connection to a receiver. From hold on, until answer, that does
// not answer, and what comes waits behind the first.
func (h *fixture) behindOne(t *testing.T) (r *receiver, hold, answer func()) {
	t.Helper()
	var holds atomic.Bool
	answers := make(chan struct{})
	r = h.receive(t, "127.0.0.1", func(w http.ResponseWriter, q *http.Request) {
		if holds.Load() {
			select {
			case <-answers:
			case <-q.Context().Done():
			}
		}
		w.WriteHeader(http.StatusNoContent)
	})
	c := h.config()
	c.Connections = 1
	h.dispatch(t, c)
	return r, func() { holds.Store(true) }, func() { close(answers) }
}

// A stream is replayed shortly before outcomes leave it, and they leave while they wait for their receiver,
// with the claims that fence them. Nothing is sent of them; an outcome as old that is still there is sent.
func TestReplayOfWhatLeavesTheStoreSendsNothing(t *testing.T) {
	t.Parallel()
	h := start(t)
	r, hold, answer := h.behindOne(t)
	sent := h.complete(t, r.URL, "sent", verified)
	h.until(t, sent.ID, "delivered")
	h.untilBacklog(t, nothing) // an acknowledgement under way would count for the consumer that follows, too
	hold()
	first := h.complete(t, r.URL, "first", verified) // the replayed ones wait behind it
	natstest.Await(t, "the first is being sent", func() bool { return r.count(first.ID) == 1 })
	natstest.Await(t, "everything is given anew", func() bool {
		state, err := h.conn.ConsumerState(t.Context(), topology.StreamCompletions,
			topology.ConsumerDispatcher)
		if err == nil && state.Floor > 0 {
			// A server that is asked for the consumer again while it deletes it may make it from the old
			// one's files, with what was acknowledged.
			err = h.conn.JS.DeleteConsumer(t.Context(), topology.StreamCompletions,
				topology.ConsumerDispatcher)
			if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
				t.Fatal(err)
			}
			return false
		}
		return err == nil && state.Given == 2 && state.Waiting == 0
	})
	h.offset.Store(int64(topology.DefaultKeepResults))
	h.keepFor(t, 0, time.Second) // the server examines ages when they become limited
	natstest.Await(t, "they have left the store", func() bool {
		attempts, err := h.store.Attempts(t.Context(), sent.ID)
		return err == nil && len(attempts) == 0
	})
	h.keepFor(t, topology.DefaultKeepResults)
	last := h.complete(t, r.URL, "last", verified) // it waits behind them
	answer()
	natstest.Await(t, "the last is sent", func() bool { return r.count(last.ID) == 1 })
	h.untilBacklog(t, nothing)
	if a, b := r.count(sent.ID), r.count(first.ID); a != 1 || b != 1 {
		t.Errorf("%d and %d POSTs of what had left the store", a, b)
	}
}

// A resend is requested and waits for its receiver, and the user is erased meanwhile. Nothing names them any
// more.
func TestResendOfAnErasedUserSendsNothing(t *testing.T) {
	t.Parallel()
	h := start(t)
	r, hold, answer := h.behindOne(t)
	gone := h.complete(t, r.URL, "gone", verified)
	h.until(t, gone.ID, facts.DeliveryDelivered)
	hold()
	first := h.complete(t, r.URL, "first", verified)
	natstest.Await(t, "the first is being sent", func() bool { return r.count(first.ID) == 1 })
	later := store.New(store.Config{
		Conn: h.conn, Key: h.key, Now: func() time.Time { return time.Now().Add(sessions.Lifetime) },
	})
	e, err := later.Erase(t.Context(), erasure.Person{
		Account: gone.Account, PlatformUserID: "gone",
		HoldUsersOf: func(s sessions.Session) []string { // it is judged, and not erased yet
			if _, err := h.store.Resend(t.Context(), s.ID, "operator"); err != nil {
				t.Fatal(err)
			}
			h.untilBacklog(t, func(b lists.Backlog) bool { return b.Waiting == 0 && b.Given == 2 })
			return nil
		},
	}, false)
	if err != nil || e.Sessions != 1 {
		t.Fatalf("%+v, %v", e, err)
	}
	answer()
	h.untilBacklog(t, nothing)
	if n := r.count(gone.ID); n != 1 {
		t.Errorf("%d POSTs of an erased user", n)
	}
}
