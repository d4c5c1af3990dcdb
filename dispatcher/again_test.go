package dispatcher_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"verifyd/dispatcher"
	"verifyd/natsconf/crashpoint"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
)

// failing answers with the statuses in turn, and with 204 from then on.
func failing(header http.Header, statuses ...int) http.HandlerFunc {
	var n atomic.Int64
	return func(w http.ResponseWriter, _ *http.Request) {
		i := int(n.Add(1)) - 1
		if i >= len(statuses) {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		maps.Copy(w.Header(), header)
		w.WriteHeader(statuses[i])
	}
}

// At least once is an opt-in: a callback that may not have been processed is sent again, with the same
// webhook-id, until it is accepted.
func TestAtLeastOnceSendsAgain(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, h *fixture) {
		h.stand()
		config := h.config()
		// the pause is a schedule
		config.DefaultPolicy, config.ScheduleFrom = sessions.PolicyAtLeastOnce, time.Second
		h.dispatch(t, config)
		schedules := h.schedules(t)
		r := h.receive(t, "127.0.0.1", failing(http.Header{"Retry-After": {"2"}}, 503))
		c := h.complete(t, r.URL, "u", verified)
		first := natstest.Receive(t, "the first POST comes", r.got)
		if waits := schedules().At.Sub(c.CompletedAt); waits < 2*time.Second {
			t.Errorf("it waits %s", waits)
		}
		h.offset.Store(int64(2 * time.Second)) // until then it waits
		second := natstest.Receive(t, "the second POST comes", r.got)
		if a, b := first.header.Get("Webhook-Id"), second.header.Get("Webhook-Id"); a != b ||
			string(first.body) != string(second.body) {
			t.Errorf("webhook-id %q, then %q; body %s, then %s", a, b, first.body, second.body)
		}
		v := h.until(t, c.ID, facts.DeliveryDelivered)
		a := v.Delivery.Attempts
		if len(a) != 2 || a[0].Result.Verdict != facts.VerdictRejected ||
			a[0].Result.Next.Sub(a[0].Result.At) < 2*time.Second {
			t.Errorf("attempts = %+v", a)
		}
		if a[1].Claim.At.Before(a[0].Result.Next) {
			t.Errorf("sent again at %s, Retry-After allowed it from %s", a[1].Claim.At, a[0].Result.Next)
		}
		// A failure that repeating does not fix is final under this policy too.
		final := h.receive(t, "127.0.0.2", status(http.StatusGone))
		h.until(t, h.complete(t, final.URL, "u", verified).ID, facts.DeliveryRejected)
	})
}

// When the time is over, the last answer is the verdict, even if the last tries could not be sent at all.
func TestAtLeastOnceEnds(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, h *fixture) {
		config := h.config()
		config.DefaultPolicy, config.RetryFor = sessions.PolicyAtLeastOnce, 2*time.Second
		h.dispatch(t, config)
		always := h.receive(t, "127.0.0.1", status(500))
		gone := h.receive(t, alone(), status(502))
		a := h.complete(t, always.URL, "u", verified)
		b := h.complete(t, gone.URL, "u", verified)
		natstest.Receive(t, "a POST comes", gone.got)
		gone.Close()
		for id, want := range map[sessions.ID]int{a.ID: 500, b.ID: 502} {
			v := h.until(t, id, facts.DeliveryRejected)
			if last := v.Delivery.Attempts[len(v.Delivery.Attempts)-1].Result; last.Status != want ||
				!last.Next.IsZero() {
				t.Errorf("last result %+v, want %d", last, want)
			}
		}
	})
}

// An attempt that ended unknown is reported as one that another follows, and the last one as the end: only
// then is there something to decide.
func TestOnlyTheLastUnknownIsReportedAsTheEnd(t *testing.T) {
	t.Parallel()
	h := start(t)
	config, ends := h.config(), make(chan dispatcher.AttemptEnd, 10)
	config.DefaultPolicy = sessions.PolicyAtLeastOnce
	config.OnAttempt = func(e dispatcher.AttemptEnd) { ends <- e }
	h.dispatch(t, config)
	r := h.receive(t, "127.0.0.1", hangUp)
	c := h.complete(t, r.URL, "u", verified)
	reported := []dispatcher.AttemptEnd{natstest.Receive(t, "an attempt is reported", ends)}
	h.offset.Store(int64(20 * time.Minute)) // beyond the retry deadline
	attempts := len(h.until(t, c.ID, facts.DeliveryUnknown).Delivery.Attempts)
	for len(reported) < attempts {
		reported = append(reported, natstest.Receive(t, "each attempt is reported", ends))
	}
	for i, e := range reported {
		if last := i == attempts-1; e.Verdict != facts.VerdictUnknown || e.Again == last {
			t.Errorf("attempt %d of %d is reported as %+v", i+1, attempts, e)
		}
	}
	if attempts < 2 {
		t.Errorf("%d attempts", attempts)
	}
}

// A key's own policy overrides the service's.
func TestPolicyOfTheKeyWins(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.dispatch(t, h.config()) // once
	r := h.receive(t, "127.0.0.1", failing(nil, 500))
	s, _, err := h.store.Create(t.Context(), sessions.Request{
		Account: "acc_a", Platform: "p", PlatformUserID: "u", CallbackURL: r.URL,
		Policy: sessions.PolicyAtLeastOnce,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.store.Complete(t.Context(), s, verified); err != nil {
		t.Fatal(err)
	}
	h.until(t, s.ID, facts.DeliveryDelivered)
	if n := r.count(s.ID); n != 2 {
		t.Errorf("%d POSTs", n)
	}
}

// A person resends: one more attempt with its own claim and the same webhook-id, however many request it at
// once, and not before the delivery has ended.
func TestResendIsOneMoreAttempt(t *testing.T) {
	t.Parallel()
	h := start(t)
	r := h.receive(t, "127.0.0.1", failing(nil, 500))
	c := h.complete(t, r.URL, "u", verified)
	if _, err := h.store.Resend(t.Context(), c.ID, "operator"); !errors.Is(err, facts.ErrDeliveryOpen) {
		t.Errorf("while due: %v", err)
	}
	stop := h.dispatch(t, h.config())
	h.until(t, c.ID, facts.DeliveryRejected)
	stop() // so that the second attempt stays open while many request it
	var wg sync.WaitGroup
	var taken atomic.Int64
	for range 8 {
		wg.Go(func() {
			asked, err := h.store.Resend(t.Context(), c.ID, "operator")
			if err == nil && asked.Number == 2 {
				taken.Add(1)
			} else if !errors.Is(err, facts.ErrDeliveryOpen) {
				t.Errorf("attempt %d, %v", asked.Number, err)
			}
		})
	}
	wg.Wait()
	if taken.Load() != 1 {
		t.Errorf("attempt 2 was given to %d who asked", taken.Load())
	}
	h.dispatch(t, h.config())
	v := h.until(t, c.ID, facts.DeliveryDelivered)
	asked, err := h.store.ResendOf(t.Context(), c.ID, 2)
	if err != nil || asked == nil || asked.By != "operator" {
		t.Errorf("asked = %+v, %v", asked, err)
	}
	if n := r.count(c.ID); n != 2 || len(v.Delivery.Attempts) != 2 {
		t.Errorf("%d POSTs, %d attempts", n, len(v.Delivery.Attempts))
	}
	canceled := h.complete(t, r.URL, "u", sessions.Outcome{State: sessions.Canceled})
	if _, err := h.store.Resend(t.Context(), canceled.ID, "x"); !errors.Is(err, facts.ErrNoDelivery) {
		t.Errorf("a canceled session: %v", err)
	}
}

// The consumer is deleted under the fetcher, which fails; its supervisor restarts it, it creates the consumer
// again, and what the new one redelivers is checked against the facts.
func TestFetcherRecoversWhenItsConsumerIsDeleted(t *testing.T) {
	t.Parallel()
	h := start(t)
	r := h.receive(t, "127.0.0.1", status(204))
	h.dispatch(t, h.config())
	before := h.complete(t, r.URL, "u", verified)
	h.until(t, before.ID, facts.DeliveryDelivered)
	if err := h.conn.JS.DeleteConsumer(t.Context(), topology.StreamCompletions,
		topology.ConsumerDispatcher); err != nil {
		t.Fatal(err)
	}
	after := h.complete(t, r.URL, "u", verified)
	h.until(t, after.ID, facts.DeliveryDelivered)
	for _, id := range []sessions.ID{before.ID, after.ID} {
		if n := r.count(id); n != 1 {
			t.Errorf("%d POSTs", n)
		}
	}
}

// A destination dies with a delivery. Its supervisor restarts it, and that delivery and the next are sent.
func TestKilledDestinationContinues(t *testing.T) {
	h := start(t)
	r := h.receive(t, "127.0.0.1", status(204))
	var died atomic.Bool
	crashpoint.Hook(func(point string) {
		if point == crashpoint.Taken && died.CompareAndSwap(false, true) {
			panic("killed by the test")
		}
	})
	stop := h.dispatch(t, h.config())
	first := h.complete(t, r.URL, "u", verified)
	h.until(t, first.ID, facts.DeliveryDelivered)
	second := h.complete(t, r.URL, "u", verified)
	h.until(t, second.ID, facts.DeliveryDelivered)
	stop()
	crashpoint.Hook(nil)
	if !died.Load() {
		t.Error("the destination was not killed")
	}
	for _, id := range []sessions.ID{first.ID, second.ID} {
		if n := r.count(id); n != 1 {
			t.Errorf("%d POSTs", n)
		}
	}
}

// A delivery is not called undeliverable, which means that nothing was ever sent, if its first attempt had
// sent something: neither when a claim was released since, nor when the process that gave it up died.
func TestWhatWasSentIsNeverUndeliverable(t *testing.T) {
	t.Parallel()
	for _, vanished := range []bool{false, true} {
		virtually(t, func(t *testing.T, h *fixture) {
			r := h.receive(t, alone(), status(http.StatusNoContent))
			r.Close()
			c := h.complete(t, r.URL, "u", verified)
			at := time.Now().UTC().Add(-time.Minute)
			claim := func(n int, giveUp bool) {
				t.Helper()
				if err := h.store.Claim(t.Context(), facts.Claim{
					Session: c.ID, Number: n, Worker: "w", GiveUp: giveUp, At: at, Deadline: at,
					SettleAfter: at,
				}); err != nil {
					t.Fatal(err)
				}
			}
			settle := func(r facts.Result) {
				t.Helper()
				r.Session, r.By, r.At = c.ID, "w", at
				if _, err := h.store.StoreResult(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
			claim(1, false)
			settle(facts.Result{
				Number: 1, Verdict: facts.VerdictUnknown, Class: failure.Timeout, Next: at,
			})
			claim(2, vanished)
			if !vanished {
				settle(facts.Result{Number: 2, Verdict: facts.VerdictReleased, Class: failure.Late})
			}
			config := h.config()
			config.RetryFor, config.DefaultPolicy = time.Second, sessions.PolicyAtLeastOnce
			h.offset.Store(int64(31 * time.Second)) // old enough for its facts to be read
			h.dispatch(t, config)
			v := h.untilSettled(t, c.ID)
			if v.Delivery.State != facts.DeliveryUnknown {
				t.Errorf("vanished %v: the delivery is %s after %+v", vanished, v.Delivery.State,
					v.Delivery.Attempts)
			}
		})
	}
}

// A request to send again is not forgotten if a late retry of the delivery before it has replaced the retry
// that carried it.
func TestResendRequestOutlivesALateRetry(t *testing.T) {
	t.Parallel()
	h := start(t)
	r := h.receive(t, "127.0.0.1", failing(nil, 500))
	stop := h.dispatch(t, h.config())
	c := h.complete(t, r.URL, "u", verified)
	h.until(t, c.ID, facts.DeliveryRejected)
	stop()
	asked, err := h.store.Resend(t.Context(), c.ID, "operator")
	if err != nil {
		t.Fatal(err)
	}
	// As if the request's own message had been acknowledged for a retry, and that retry been replaced.
	h.taken(t, "resend."+string(c.ID)+".2")
	if err := h.store.Schedule(t.Context(), facts.Retry{
		Session: c.ID, Tries: 1, Since: asked.At, At: time.Now(),
	}); err != nil {
		t.Fatal(err)
	}
	h.dispatch(t, h.config())
	h.until(t, c.ID, facts.DeliveryDelivered)
	if n := r.count(c.ID); n != 2 {
		t.Errorf("%d POSTs", n)
	}
}

// A requested or next try that has outlived its outcome, which has aged out or whose user was erased, is
// dropped.
func TestResendRequestWithoutAnOutcomeEnds(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, h *fixture) {
		r := h.receive(t, "127.0.0.1", status(http.StatusOK))
		c := h.complete(t, r.URL, "u", verified)
		gone := strings.Repeat("a", len(c.ID))
		natstest.Publish(t, h.conn, "resend."+gone+".2",
			[]byte(`{"v":1,"n":2,"by":"operator"}`))
		h.dispatch(t, h.config())
		h.until(t, c.ID, facts.DeliveryDelivered)
		ctx, cancel := context.WithTimeout(t.Context(), natstest.TestTimeout)
		defer cancel()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			state, err := h.conn.ConsumerState(ctx, topology.StreamCompletions, topology.ConsumerDispatcher)
			if err == nil && state.Waiting+state.Given == 0 {
				return
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				t.Fatalf("%+v, %v", state, err)
			}
		}
	})
}
