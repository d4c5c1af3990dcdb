package dispatcher_test

import (
	"sync/atomic"
	"testing"
	"time"

	"verifyd/natsconf/crashpoint"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
)

// The owner of a claim comes back beyond its deadline, and releases it, in the very moment in which another
// dispatcher settles it. Both have a copy of one message, and an acknowledgement counts for both: the
// delivery, which is due again, must not lose it.
func TestReleaseWhileAnotherSettlesLosesNothing(t *testing.T) {
	h := start(t) // not parallel: the hook is global
	r := h.receive(t, alone(), status(204))
	now := time.Now()
	c := h.complete(t, r.URL, "u", verified)
	err := h.store.Claim(t.Context(), facts.Claim{
		Session: c.ID, Number: 1, Worker: "paused", At: now.Add(-time.Minute),
		Deadline: now.Add(-50 * time.Second), SettleAfter: now.Add(-40 * time.Second),
	})
	if err != nil {
		t.Fatal(err)
	}
	var came atomic.Bool
	crashpoint.Hook(func(point string) {
		if point != crashpoint.BeforeResult || came.Swap(true) {
			return
		}
		_, err := h.store.StoreResult(t.Context(), facts.NewResult(c.ID, 1, facts.VerdictReleased,
			failure.Late, "paused", time.Now()))
		if err != nil {
			t.Errorf("the owner's release: %v", err)
		}
	})
	stop := h.dispatch(t, h.config())
	defer func() { stop(); crashpoint.Hook(nil) }()
	v := h.until(t, c.ID, facts.DeliveryDelivered)
	if a := v.Delivery.Attempts; len(a) != 2 || a[0].Result.Verdict != facts.VerdictReleased {
		t.Errorf("the attempts are %+v", a)
	}
	if n := r.count(c.ID); n != 1 {
		t.Errorf("%d POSTs", n)
	}
}
