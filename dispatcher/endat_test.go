package dispatcher

import (
	"context"
	"testing"
	"time"

	"verifyd/natsconf"
	"verifyd/natsconf/storetime"
	"verifyd/sessions"
)

// What was copied from another store keeps its expiry there, whatever this one's retention.
func TestEndAtIsTheOutcomesOwn(t *testing.T) {
	d, at := &shared{c: Config{Now: time.Now}.withDefaults()}, time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	c := sessions.Completion{CompletedAt: at}
	if _, ok := d.endAt(c); ok {
		t.Error("an end, and nobody knows how long outcomes are kept")
	}
	d.keptFor.Store(int64(72 * time.Hour))
	if end, ok := d.endAt(c); !ok || !end.Equal(at.Add(72*time.Hour-d.c.EndBefore)) {
		t.Errorf("%s, %t", end, ok)
	}
	c.KeptUntil = at.Add(2 * time.Hour)
	if end, ok := d.endAt(c); !ok || !end.Equal(at.Add(2*time.Hour-d.c.EndBefore)) {
		t.Errorf("brought from elsewhere: %s, %t", end, ok)
	}
}

// A process whose clock is wrong does not give up before the outcome leaves the store, and one whose machine
// was suspended since it claimed does not begin.
func TestClockDecidesLittle(t *testing.T) {
	t.Parallel()
	ahead := time.Duration(0)
	clock := storetime.New(func(context.Context) (time.Time, error) { return time.Now(), nil },
		func() time.Time { return time.Now().Add(ahead) })
	if err := clock.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	d := &shared{c: Config{Conn: &natsconf.Conn{Clock: clock}, RetryFor: time.Minute}.withDefaults()}
	now := clock.Now()
	a := &attempt{shared: d, delivery: &delivery{due: now.Add(-time.Hour)}}
	a.CompletedAt, a.KeptUntil = a.due, now.Add(time.Hour)
	if left := a.left(now); left > 0 {
		t.Errorf("with a right clock it is tried for another %s", left)
	}
	w := window{now.Add(time.Minute), clock.Skew()}
	if !d.open(now, w) {
		t.Error("it cannot begin")
	}
	ahead = time.Minute
	if left := a.left(now); left != maxBackoff {
		t.Errorf("with a wrong clock it is tried for another %s", left)
	}
	if d.open(now, w) {
		t.Error("it begins after its machine was suspended")
	}
	a.KeptUntil = now
	if left := a.left(now); left > 0 {
		t.Errorf("an outcome that leaves is tried for another %s", left)
	}
}
