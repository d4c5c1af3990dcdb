package dispatcher_test

import (
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf/crashpoint"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/erasure"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
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

// ageOut makes all facts of a delivery leave the store by their age, which only the server notices.
func (h *fixture) ageOut(t *testing.T, id sessions.ID) {
	t.Helper()
	h.keepFor(t, 0, time.Second) // the server examines ages when they become limited
	natstest.Await(t, "the facts have left the store", func() bool {
		attempts, err := h.store.Attempts(t.Context(), id)
		return err == nil && len(attempts) == 0
	})
	h.keepFor(t, topology.DefaultKeepResults)
}

// A stream is replayed shortly before outcomes leave it, and they leave while they wait for their receiver,
// with the claims that fence them. By this process's clock it is not time yet; nothing is sent of them.
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
	h.offset.Store(int64(time.Hour)) // old enough for the outcome to be looked for
	h.ageOut(t, sent.ID)
	last := h.complete(t, r.URL, "last", verified) // it waits behind them
	answer()
	h.untilSettled(t, last.ID)
	h.untilBacklog(t, nothing)
	if a, b := r.count(sent.ID), r.count(first.ID); a != 1 || b != 1 {
		t.Errorf("%d and %d POSTs of what had left the store", a, b)
	}
}

// A process is stopped after it has found no facts of a delivery. Meanwhile another one sends it, and the
// outcome leaves the store with the claim that would fence it. The first goes on, and sends nothing.
func TestStoppedForAWholeLifeSendsNothing(t *testing.T) {
	h := start(t)
	r := h.receive(t, "127.0.0.1", status(http.StatusNoContent))
	ready, goOn := make(chan struct{}), make(chan struct{})
	var stopped atomic.Bool
	crashpoint.Hook(func(point string) {
		if point == crashpoint.Connected && stopped.CompareAndSwap(false, true) {
			close(ready)
			<-goOn
		}
	})
	defer crashpoint.Hook(nil)
	stop := h.dispatch(t, h.config())
	defer stop()
	c := h.complete(t, r.URL, "u", verified)
	natstest.Receive(t, "it has a connection, and has claimed nothing", ready)
	at := time.Now().UTC()
	other := facts.NewClaim(c.ID, 1, "another", at, time.Minute, time.Minute)
	if err := h.store.Claim(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	sent := facts.NewResult(c.ID, 1, facts.VerdictDelivered, "", "another", at)
	if _, err := h.store.StoreResult(t.Context(), sent); err != nil {
		t.Fatal(err)
	}
	h.offset.Store(int64(topology.DefaultKeepResults))
	h.ageOut(t, c.ID)
	close(goOn)
	h.untilBacklog(t, nothing)
	natstest.Await(t, "the attempt ends", func() bool {
		a, err := h.store.Attempts(t.Context(), c.ID)
		return err == nil && len(a) == 1 && a[0].Result != nil
	})
	if n := r.count(c.ID); n != 0 {
		t.Errorf("%d POSTs of what another process had sent", n)
	}
}

// In the last minutes of an outcome's life, a claim would not fence its attempt for as long as somebody may
// send. What was not sent until then is given up; what has a few minutes more is sent.
func TestOutcomeThatIsAboutToLeaveIsGivenUp(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.stand()
	r := h.receive(t, "127.0.0.1", status(http.StatusNoContent))
	h.offset.Store(int64(topology.DefaultKeepResults - 5*time.Minute))
	h.dispatch(t, h.config())
	h.until(t, h.complete(t, r.URL, "u", verified).ID, facts.DeliveryDelivered)
	h.offset.Store(int64(topology.DefaultKeepResults - time.Minute))
	c := h.complete(t, r.URL, "u", verified)
	v := h.until(t, c.ID, facts.DeliveryUndeliverable)
	if a := v.Delivery.Attempts; r.count(c.ID) != 0 || len(a) != 1 || !a[0].Claim.GiveUp ||
		a[0].Result.Class != failure.Late {
		t.Errorf("%d POSTs, attempts = %+v", r.count(c.ID), a)
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
