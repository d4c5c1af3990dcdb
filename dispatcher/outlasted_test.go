package dispatcher_test

import (
	"testing"
	"time"

	"verifyd/natsconf/natstest"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
	"verifyd/sessions/pauses"
)

// However long a host is paused, and however often, an outcome that waits for it does not leave the store
// without a verdict: those that wait at the host, those that wait in JetStream, and those of a dispatcher
// that starts only then.
func TestPausesDoNotOutlastAnOutcome(t *testing.T) {
	t.Parallel()
	h := start(t)
	r := h.receive(t, "127.0.0.1", status(204))
	operator := h.pausing(t)
	config := h.config()
	config.Pauses, config.Connections, config.Idle, config.Metrics = h.mirrored(t), 2, 50*time.Millisecond,
		nil
	var waiting []sessions.Completion
	for range 5 { // two of them wait at the host
		waiting = append(waiting, h.complete(t, "https://"+r.Listener.Addr().String(), "u", verified))
	}
	var last pauses.Pause
	for i := range 4 { // consecutive pauses, of a day each
		if i > 0 {
			h.offset.Add(int64(23*time.Hour + 45*time.Minute))
		}
		var err error
		if last, err = operator.Begin(t.Context(), r.Listener.Addr().String(), "olga", "",
			24*time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	natstest.Await(t, "the last pause is known", func() bool {
		p, ok := config.Pauses.Of(r.Listener.Addr().String())
		return ok && p.Until.Equal(last.Until)
	})
	stop := h.dispatch(t, config)
	other := h.receive(t, "127.0.0.1", status(204))
	h.until(t, h.complete(t, "https://"+other.Listener.Addr().String(), "u", verified).ID,
		facts.DeliveryDelivered)
	for _, c := range waiting { // 71 hours and a quarter after its completion, of 72
		if v := h.until(t, c.ID, facts.DeliveryDue); len(v.Delivery.Attempts) != 0 {
			t.Errorf("ended before the last call: %+v", v.Delivery)
		}
	}
	h.offset.Add(int64(20 * time.Minute))
	for i, c := range waiting {
		if i == 3 { // one that starts late does the same
			stop()
			h.dispatch(t, config)
		}
		v := h.until(t, c.ID, facts.DeliveryUndeliverable)
		if end := v.Delivery.Attempts[len(v.Delivery.Attempts)-1].Result; end.Class != failure.Paused {
			t.Errorf("ended as %+v", end)
		}
	}
	if len(r.got) != 0 {
		t.Errorf("%d POSTs to a paused host", len(r.got))
	}
}
