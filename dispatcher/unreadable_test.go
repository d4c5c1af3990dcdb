package dispatcher_test

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
	"verifyd/sessions/store"
)

func (h *fixture) soon(t *testing.T, otherwise string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), natstest.TestTimeout)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal(otherwise)
		}
	}
}

// telling counts what the rig's store reports.
func (h *fixture) telling(t *testing.T) *atomic.Int64 {
	t.Helper()
	var told atomic.Int64
	h.store = store.New(store.Config{
		Conn: h.conn, Key: h.key, Completions: h.completions, OnUnreadable: func(*facts.UnreadableError) {
			told.Add(1)
		},
		Pending: natstest.Writer(t, h.conn, topology.BucketStream(topology.BucketSessions)),
		Retries: natstest.Writer(t, h.conn, topology.StreamRetries),
	})
	return &told
}

// leftTo counts what a consumer has still to do, and returns the maximum while the store does not say.
func (h *fixture) leftTo(t *testing.T, c topology.Consumer) uint64 {
	t.Helper()
	state, err := h.conn.ConsumerState(t.Context(), c.Stream, c.Config.Durable)
	switch {
	case errors.Is(err, natsconf.ErrUnavailable):
		return math.MaxUint64 // not known
	case err != nil:
		t.Fatal(err)
	}
	return state.Waiting + state.Given
}

// A message in a completion's or a requested attempt's place that cannot be read is reported and, after a few
// tries, dropped. Others are delivered.
func TestUnreadableMessagesAreLetGo(t *testing.T) {
	t.Parallel()
	h := start(t)
	told := h.telling(t)
	r := h.receive(t, "127.0.0.1", status(204))
	s, _, err := h.store.Create(t.Context(), sessions.Request{
		Account: "acc_a", Key: "key_k", Platform: "p", PlatformUserID: "u", CallbackURL: r.URL,
	})
	if err != nil {
		t.Fatal(err)
	}
	natstest.Plant(t, h.conn, topology.StreamCompletions, "completion."+string(s.ID))
	natstest.Plant(t, h.conn, topology.StreamCompletions, "completion.nobody")
	c := h.config()
	c.UnreadablePause = 50 * time.Millisecond
	h.dispatch(t, c)
	other := h.complete(t, r.URL, "u", verified)
	h.until(t, other.ID, facts.DeliveryDelivered)
	natstest.Plant(t, h.conn, topology.StreamCompletions, "resend."+string(other.ID)+".2")
	consumer := topology.DispatcherConsumers()[0]
	h.soon(t, "the consumer gives it out forever", func() bool {
		return h.leftTo(t, consumer) == 0 && told.Load() >= 3*3
	})
	if n := told.Load(); n != 3*3 {
		t.Errorf("told %d times of three messages", n)
	}
	if n := r.count(s.ID) + r.count(other.ID); n != 1 {
		t.Errorf("%d POSTs", n)
	}
}

// It is not known whose claim it is: its owner may have sent, so no other process does. The attempt is
// settled as unknown, and a person may send again.
func TestUnreadableClaimIsNeverSent(t *testing.T) {
	t.Parallel()
	h := start(t)
	r := h.receive(t, "127.0.0.1", status(204))
	c := h.complete(t, r.URL, "u", verified)
	natstest.Plant(t, h.conn, topology.StreamCompletions, "claim."+string(c.ID)+".1")
	h.dispatch(t, h.config())
	h.soon(t, "it is not settled", func() bool {
		return natstest.SequenceOf(t, h.conn, topology.StreamCompletions, "result."+string(c.ID)+".1") > 0
	})
	v := h.until(t, c.ID, facts.DeliveryUnknown)
	if a := v.Delivery.Attempts[0]; a.Presumed || a.Result.Class != failure.Unreadable ||
		a.Result.By == "" {
		t.Errorf("%+v", a)
	}
	if n := r.count(c.ID); n != 0 {
		t.Errorf("%d POSTs", n)
	}
	if _, err := h.store.Resend(t.Context(), c.ID, "operator"); err != nil {
		t.Fatal(err)
	}
	h.until(t, c.ID, facts.DeliveryDelivered)
	if n := r.count(c.ID); n != 1 {
		t.Errorf("%d POSTs", n)
	}
}

// A result that is presumed may be followed by a request to send again, whose message comes first. The result
// is stored, and then the request is carried out.
func TestRequestBehindAnUnreadableClaim(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.stand()
	r := h.receive(t, "127.0.0.1", status(204))
	c := h.complete(t, r.URL, "u", verified)
	h.acknowledge(t) // only the request is left to deliver
	natstest.Plant(t, h.conn, topology.StreamCompletions, "claim."+string(c.ID)+".1")
	if _, err := h.store.Resend(t.Context(), c.ID, "operator"); err != nil {
		t.Fatal(err)
	}
	h.dispatch(t, h.config())
	v := h.until(t, c.ID, facts.DeliveryDelivered)
	if a := v.Delivery.Attempts; len(a) != 2 || a[0].Presumed || r.count(c.ID) != 1 {
		t.Errorf("%d POSTs, attempts = %+v", r.count(c.ID), a)
	}
}

// Under at-least-once an attempt that may have been sent is sent again, as with any other that is unknown.
func TestUnreadableClaimUnderAtLeastOnce(t *testing.T) {
	t.Parallel()
	h := start(t)
	r := h.receive(t, "127.0.0.1", status(204))
	c := h.complete(t, r.URL, "u", verified)
	natstest.Plant(t, h.conn, topology.StreamCompletions, "claim."+string(c.ID)+".1")
	config := h.config()
	config.DefaultPolicy = sessions.PolicyAtLeastOnce
	h.dispatch(t, config)
	if v := h.until(t, c.ID, facts.DeliveryDelivered); len(v.Delivery.Attempts) != 2 {
		t.Errorf("%+v", v.Delivery)
	}
	if n := r.count(c.ID); n != 1 {
		t.Errorf("%d POSTs", n)
	}
}

// After a delivery has ended, an unreadable claim reopens nothing, under either policy. It only blocks the
// attempt if a person requests exactly that one.
func TestUnreadableClaimAfterTheEndReopensNothing(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]sessions.Policy{
		"once": sessions.PolicyOnce, "at least once": sessions.PolicyAtLeastOnce,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := start(t)
			r := h.receive(t, "127.0.0.1", status(204))
			c := h.complete(t, r.URL, "u", verified)
			config := h.config()
			config.DefaultPolicy = policy
			h.dispatch(t, config)
			h.until(t, c.ID, facts.DeliveryDelivered)
			natstest.Plant(t, h.conn, topology.StreamCompletions, "claim."+string(c.ID)+".2")
			natstest.Plant(t, h.conn, topology.StreamRetries, "retry."+string(c.ID))
			h.untilBacklog(t, nothing)
			if v := h.until(t, c.ID, facts.DeliveryDelivered); r.count(c.ID) != 1 ||
				len(v.Delivery.Attempts) != 1 {
				t.Errorf("%d POSTs, %+v", r.count(c.ID), v.Delivery)
			}
			if _, err := h.store.Resend(t.Context(), c.ID, "operator"); err != nil {
				t.Fatal(err)
			}
			h.soon(t, "it is not settled", func() bool {
				return natstest.SequenceOf(t, h.conn, topology.StreamCompletions,
					"result."+string(c.ID)+".2") > 0
			})
			if policy == sessions.PolicyOnce {
				h.untilBacklog(t, nothing)
				if h.until(t, c.ID, facts.DeliveryUnknown); r.count(c.ID) != 1 {
					t.Errorf("%d POSTs", r.count(c.ID))
				}
				if _, err := h.store.Resend(t.Context(), c.ID, "operator"); err != nil {
					t.Fatal(err)
				}
			}
			if v := h.until(t, c.ID, facts.DeliveryDelivered); r.count(c.ID) != 2 ||
				len(v.Delivery.Attempts) != 3 {
				t.Errorf("%d POSTs, %+v", r.count(c.ID), v.Delivery)
			}
		})
	}
}

// The end of an attempt cannot be stored if another message is in the result's place. It was sent once, and
// is not sent again.
func TestUnreadableResultIsNotSentAgain(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]sessions.Policy{
		"once": sessions.PolicyOnce, "at least once": sessions.PolicyAtLeastOnce,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := start(t)
			r := h.receive(t, "127.0.0.1", status(204))
			c := h.complete(t, r.URL, "u", verified)
			natstest.Plant(t, h.conn, topology.StreamCompletions, "result."+string(c.ID)+".1")
			config := h.config()
			config.DefaultPolicy = policy
			h.dispatch(t, config)
			h.until(t, c.ID, facts.DeliveryUnknown)
			consumer := topology.DispatcherConsumers()[0]
			h.soon(t, "it is not let go of", func() bool { return h.leftTo(t, consumer) == 0 })
			if n := r.count(c.ID); n != 1 {
				t.Errorf("%d POSTs", n)
			}
		})
	}
}

// acknowledge acknowledges one completion, as a dispatcher does once its hint is stored.
func (h *fixture) acknowledge(t *testing.T) {
	t.Helper()
	first, err := h.conn.JS.Consumer(t.Context(), topology.StreamCompletions, topology.ConsumerDispatcher)
	if err != nil {
		t.Fatal(err)
	}
	batch, err := first.Fetch(1)
	if err != nil {
		t.Fatal(err)
	}
	for m := range batch.Messages() {
		if err := m.DoubleAck(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// An overwritten hint gives a delivery no more time: it is stored again as one since the completion.
func TestUnreadableScheduleAddsNoTime(t *testing.T) {
	t.Parallel()
	h := start(t)
	r := h.receive(t, alone(), status(204))
	r.Close()
	c := h.complete(t, r.URL, "u", verified)
	h.acknowledge(t)
	subject := "schedule." + string(c.ID)
	natstest.Plant(t, h.conn, topology.StreamRetries, subject)
	planted := natstest.SequenceOf(t, h.conn, topology.StreamRetries, subject)
	h.dispatch(t, h.config())
	h.soon(t, "it is not stored anew", func() bool {
		return natstest.SequenceOf(t, h.conn, topology.StreamRetries, subject) > planted
	})
	if again := h.schedule(t, c.ID); !again.Since.Equal(c.CompletedAt) {
		t.Errorf("%+v, completed at %s", again, c.CompletedAt)
	}
}

// A hint that was overwritten, while it waits or when it is due, is reconstructed from the facts: the
// delivery is not lost.
func TestUnreadableHintLosesNoDelivery(t *testing.T) {
	t.Parallel()
	for name, subject := range map[string]string{"a schedule": "schedule.", "what is due": "retry."} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := start(t)
			told := h.telling(t)
			r := h.receive(t, "127.0.0.1", status(204))
			c := h.complete(t, r.URL, "u", verified)
			h.acknowledge(t)
			if err := h.store.Schedule(t.Context(), facts.Retry{
				Session: c.ID, Tries: 1, Since: c.CompletedAt, At: time.Now().Add(time.Hour),
			}); err != nil {
				t.Fatal(err)
			}
			if subject == "retry." {
				natstest.Publish(t, h.conn, subject+string(c.ID), []byte("planted"))
			} else {
				natstest.Plant(t, h.conn, topology.StreamRetries, subject+string(c.ID))
			}
			h.dispatch(t, h.config())
			h.until(t, c.ID, facts.DeliveryDelivered)
			if n := r.count(c.ID); n != 1 {
				t.Errorf("%d POSTs", n)
			}
			if told.Load() == 0 {
				t.Error("nobody was told")
			}
		})
	}
}
