package dispatcher_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/lists"
	"verifyd/sessions/store"
)

// comeBack restarts a closed receiver on the same address.
func (h *fixture) comeBack(t *testing.T, r *receiver) {
	t.Helper()
	l := h.listen(t, r.Listener.Addr().String())
	again := httptest.NewUnstartedServer(r.Config.Handler)
	_ = again.Listener.Close()
	again.Listener, again.TLS = l, &tls.Config{Certificates: r.TLS.Certificates, MinVersion: tls.VersionTLS12}
	again.StartTLS()
	t.Cleanup(again.Close)
}

// untilBacklog waits for the backlog to be as wanted.
func (h *fixture) untilBacklog(t *testing.T, wanted func(lists.Backlog) bool) (b lists.Backlog) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("the backlog is %+v", b)
		}
	}()
	natstest.Await(t, "the backlog that is wanted", func() bool {
		var err error
		if b, err = h.store.Backlog(t.Context()); err != nil && !errors.Is(err, natsconf.ErrUnavailable) {
			t.Fatal(err)
		}
		return err == nil && wanted(b)
	})
	return b
}

// scheduled is a backlog of one schedule. A schedule that fires while it is read is counted, and not found.
func scheduled(b lists.Backlog) bool {
	return b.Scheduled == 1 && b.Waiting+b.Given == 0 && !b.Oldest.IsZero()
}

func nothing(b lists.Backlog) bool { return b == lists.Backlog{} }

// A long pause costs no consumer anything, and outlives dispatcher and server: when it is over, any running
// dispatcher tries again.
func TestLongPauseSurvivesARestart(t *testing.T) {
	t.Parallel()
	h, dir := newFixture(t), t.TempDir()
	conn, stopServer := natstest.StartIn(t, dir)
	h.open(t, conn)
	r := h.receive(t, alone(), status(http.StatusNoContent))
	r.Close()
	config := h.config()
	config.ScheduleFrom = time.Second // every pause
	stopDispatcher := h.dispatch(t, config)
	c := h.complete(t, r.URL, "u", verified)
	b := h.untilBacklog(t, scheduled)
	if !b.Oldest.Equal(c.CompletedAt) {
		t.Errorf("the oldest has waited since %s, the completion is of %s", b.Oldest, c.CompletedAt)
	}
	stopDispatcher()
	stopServer()

	conn, _ = natstest.StartIn(t, dir)
	h.open(t, conn)
	h.comeBack(t, r)
	h.dispatch(t, h.config())
	v := h.until(t, c.ID, facts.DeliveryDelivered)
	if n := r.count(c.ID); n != 1 || len(v.Delivery.Attempts) != 1 {
		t.Errorf("%d POSTs, %d claims", n, len(v.Delivery.Attempts))
	}
	h.untilBacklog(t, nothing)
}

// Each pause depends on how often the delivery was tried, across schedules too; it is given up in time; and a
// requested attempt waits in the same way.
func TestSchedulesCarryTheirDelivery(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, h *fixture) {
		r := h.receive(t, alone(), status(http.StatusNoContent))
		r.Close()
		config := h.config()
		config.ScheduleFrom = time.Second
		config.RetryFor = 2 * natstest.TestTimeout // however slow the machine is
		stop := h.dispatch(t, config)
		schedules := h.schedules(t)
		c := h.complete(t, r.URL, "u", verified)
		for tries := 1; tries <= 2; tries++ {
			if s := schedules(); s.Tries != tries || s.RequestedAttempt != 0 ||
				!s.Since.Equal(c.CompletedAt) {
				t.Errorf("retry %d: %+v", tries, s)
			}
		}
		h.offset.Store(int64(config.RetryFor)) // it is over, by the clock that decides
		v := h.until(t, c.ID, facts.DeliveryUndeliverable)
		if took := v.Delivery.Attempts[0].Result.At.Sub(c.CompletedAt); took < config.RetryFor {
			t.Errorf("given up after %s, want %s", took, config.RetryFor)
		}
		h.untilBacklog(t, nothing)

		stop()
		h.offset.Store(0)
		config = h.config()
		config.ScheduleFrom, config.RetryFor = time.Second, natstest.TestTimeout
		h.dispatch(t, config)
		schedules = h.schedules(t)
		asked, err := h.store.Resend(t.Context(), c.ID, "operator")
		if err != nil {
			t.Fatal(err)
		}
		again := schedules()
		if again.RequestedAttempt != 2 || again.Tries != 1 || !again.Since.Equal(asked.At) {
			t.Errorf("retry of what was asked for: %+v", again)
		}
		h.comeBack(t, r)
		v = h.until(t, c.ID, facts.DeliveryDelivered)
		if n := r.count(c.ID); n != 1 || len(v.Delivery.Attempts) != 2 {
			t.Errorf("%d POSTs, %d claims", n, len(v.Delivery.Attempts))
		}
	})
}

// schedules hears every schedule from now on; next returns one after the other. Each exists in the store only
// until it is due.
func (h *fixture) schedules(t *testing.T) (next func() facts.Retry) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), natstest.TestTimeout)
	defer cancel()
	heard, err := h.conn.NC.SubscribeSync("schedule.*")
	if err == nil {
		err = h.conn.NC.FlushWithContext(ctx) // the server knows of it
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = heard.Unsubscribe() })
	return func() facts.Retry {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), natstest.TestTimeout)
		defer cancel()
		m, err := heard.NextMsgWithContext(ctx)
		if err != nil {
			t.Fatal(err)
		}
		r, err := h.store.DecodeRetry(m.Subject, m.Data)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
}

// schedule waits for the schedule of a session, and reads it.
func (h *fixture) schedule(t *testing.T, id sessions.ID) facts.Retry {
	t.Helper()
	var m *jetstream.RawStreamMsg
	natstest.Await(t, "a schedule", func() bool {
		var err error
		if m, err = h.conn.Last(t.Context(), topology.StreamRetries, "schedule."+string(id)); err != nil &&
			!errors.Is(err, natsconf.ErrNotFound) && !errors.Is(err, natsconf.ErrUnavailable) {
			t.Fatal(err)
		}
		return err == nil
	})
	r, err := h.store.DecodeRetry(m.Subject, m.Data)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A retry that is redelivered when everything is over changes nothing, and a schedule that cannot be stored
// leaves the delivery with its consumer.
func TestRetriesAreHints(t *testing.T) {
	t.Parallel()
	h := start(t)
	r := h.receive(t, "127.0.0.1", status(http.StatusNoContent))
	h.dispatch(t, h.config())
	c := h.complete(t, r.URL, "u", verified)
	h.until(t, c.ID, facts.DeliveryDelivered)
	if err := h.store.Schedule(t.Context(), facts.Retry{
		Session: c.ID, Tries: 1, Since: c.CompletedAt, At: time.Now(),
	}); err != nil {
		t.Fatal(err)
	}
	h.untilBacklog(t, nothing)
	if n := r.count(c.ID); n != 1 {
		t.Errorf("%d POSTs", n)
	}

	gone := h.receive(t, alone(), status(http.StatusNoContent))
	gone.Close()
	if err := h.conn.JS.DeleteStream(t.Context(), topology.StreamRetries); err != nil {
		t.Fatal(err)
	}
	config := h.config()
	config.ScheduleFrom = time.Second
	h.dispatch(t, config)
	d := h.complete(t, gone.URL, "u", verified)
	h.comeBack(t, gone)
	h.until(t, d.ID, facts.DeliveryDelivered)
}

// taken makes a completion's message count as dealt with, as after a schedule was stored.
func (h *fixture) taken(t *testing.T, subject string) {
	t.Helper()
	consumer, err := h.conn.JS.Consumer(t.Context(), topology.StreamCompletions, topology.ConsumerDispatcher)
	if err != nil {
		t.Fatal(err)
	}
	m, err := consumer.Next()
	if err == nil {
		err = m.DoubleAck(t.Context())
	}
	if err != nil || m.Subject() != subject {
		t.Fatalf("%v, %v", m, err)
	}
}

// A dispatcher whose clock is ahead finds every schedule overdue before it is due. It may store it again, but
// not put it off.
func TestClockThatIsAheadPutsNoScheduleOff(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, h *fixture) {
		r := h.receive(t, "127.0.0.1", status(http.StatusNoContent))
		c := h.complete(t, r.URL, "u", verified)
		h.taken(t, "completion."+string(c.ID))
		h.offset.Store(int64(45 * time.Second))
		config, log := h.config(), newLogSignal()
		config.Log = zerolog.New(log)
		config.Sessions = store.New(store.Config{ // on the process's clock
			Conn: h.conn, Key: h.key, Completions: h.completions, Now: config.Now,
			Retries: natstest.Writer(t, h.conn, topology.StreamRetries),
		})
		if err := h.store.Schedule(t.Context(), facts.Retry{
			Session: c.ID, Tries: 1, Since: c.CompletedAt, At: time.Now().Add(10 * time.Second),
		}); err != nil {
			t.Fatal(err)
		}
		h.dispatch(t, config)
		log.wait(t, "scheduled anew")
		h.until(t, c.ID, facts.DeliveryDelivered)
	})
}

// A hint that names a requested attempt, without the request among the facts, sends nothing. It claims
// nothing either: a hint that says that nobody has tried a young delivery does not spare the read of its
// facts.
func TestHintAloneSendsNothing(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.stand() // the delivery stays young
	r := h.receive(t, "127.0.0.1", status(http.StatusNoContent))
	config, metrics := h.config(), prometheus.NewRegistry()
	config.Metrics = metrics
	h.dispatch(t, config)
	c := h.complete(t, r.URL, "u", verified)
	h.until(t, c.ID, facts.DeliveryDelivered)
	if err := h.store.Schedule(t.Context(), facts.Retry{
		Session: c.ID, RequestedAttempt: 2, Since: c.CompletedAt, At: time.Now(),
	}); err != nil {
		t.Fatal(err)
	}
	natstest.Await(t, "the hint has come", func() bool {
		_, err := h.conn.Last(t.Context(), topology.StreamRetries, "retry."+string(c.ID))
		return err == nil
	})
	h.untilBacklog(t, nothing) // it was taken, and dealt with
	if n := r.count(c.ID); n != 1 {
		t.Errorf("%d POSTs, and nobody has requested a second", n)
	}
	if n := counter(t, metrics, "verifyd_delivery_claim_conflicts_total"); n != 0 {
		t.Errorf("%v claims of what another attempt had claimed", n)
	}
}

// The acknowledgement of a claim is lost, the claim is stored: its owner knows that it sent nothing, releases
// the attempt, and the next one is sent. Any other process would have to call it unknown.
func TestClaimWhoseAcknowledgementWasLostIsReleased(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, h *fixture) {
		r := h.receive(t, "127.0.0.1", status(http.StatusNoContent))
		c := h.complete(t, r.URL, "u", verified)
		h.stopCompletions() // from here on no claim reaches JetStream
		config := h.config()
		config.Timeout = quick // the claim is for as long; the receiver has longer
		log := newLogSignal()
		config.Log = zerolog.New(log)
		h.dispatch(t, config)
		log.wait(t, "a delivery has to wait")
		natstest.Serve(t, h.completions) // accepts the claim that waited there
		v := h.until(t, c.ID, facts.DeliveryDelivered)
		a := v.Delivery.Attempts
		if len(a) != 2 || a[0].Result.Verdict != facts.VerdictReleased || r.count(c.ID) != 1 {
			t.Errorf("%d POSTs, attempts = %+v", r.count(c.ID), a)
		}
	})
}
