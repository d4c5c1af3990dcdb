package dispatcher_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
)

// Deliveries wait as schedules while the server that leads them is killed, and with it the facts' leader:
// when their time has come each is sent once, by one claim.
func TestScheduledDeliveriesOutliveTheLeaders(t *testing.T) {
	t.Parallel()
	const many = 40
	trio := natstest.StartTrio(t)
	conn := trio.Connect(t)
	natstest.Ensure(t, conn)
	h := newFixture(t)
	h.open(t, trio.Connect(t))
	r := h.receive(t, "127.0.0.1", status(http.StatusNoContent))
	var all []sessions.Completion
	for range many {
		all = append(all, h.complete(t, r.URL, "u", verified))
	}
	// What a dispatcher does with a delivery whose next try is far off: a schedule, and the delivery's own
	// message is acknowledged.
	at := time.Now().Add(3 * time.Second)
	for _, c := range all {
		if err := h.store.Schedule(t.Context(), facts.Retry{
			Session: c.ID, Tries: 1, Since: c.CompletedAt, At: at,
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.Acknowledge(t.Context(), topology.DispatcherConsumers()[0], func(jetstream.Msg) bool {
		return true
	}); err != nil {
		t.Fatal(err)
	}
	leader := natstest.Leader(t, conn, topology.StreamRetries)
	natstest.Lead(t, conn, topology.StreamCompletions, leader)
	h.dispatch(t, h.config())
	trio.Kill(leader)
	for _, stream := range []string{
		topology.StreamRetries, topology.StreamCompletions, topology.BucketStream(topology.BucketSessions),
	} {
		natstest.Leader(t, conn, stream)
	}
	if time.Now().Before(at) {
		t.Error("a new leader was there before the retries were due: this test is about nothing")
	}
	trio.Start(t, leader)
	for _, c := range all {
		v := h.until(t, c.ID, facts.DeliveryDelivered)
		if n := r.count(c.ID); n != 1 || len(v.Delivery.Attempts) != 1 {
			t.Errorf("%d POSTs, attempts %+v", n, v.Delivery.Attempts)
		}
	}
	// a consumer elects a leader of its own
	if err := natsconf.AtBoot(t.Context(), func(ctx context.Context) error {
		b, err := h.store.Backlog(ctx)
		if err == nil && !nothing(b) {
			err = fmt.Errorf("the backlog is %+v", b)
		}
		return err
	}, func(error) bool { return false }); err != nil {
		t.Error(err)
	}
}
