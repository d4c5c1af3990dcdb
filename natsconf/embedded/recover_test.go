package embedded_test

import (
	"testing"
	"time"

	"verifyd/natsconf/embedded"
)

// The span of a loss holds every one of its damages. It has no end if one of them has none: the clock of the
// recovery, which a change of the machine may have set back, is no end of it.
func TestSpanOfALoss(t *testing.T) {
	t.Parallel()
	at := func(hour int) time.Time { return time.Date(2026, 1, 2, hour, 0, 0, 0, time.UTC) }
	damage := func(from, to time.Time) embedded.Damage {
		return embedded.Damage{Stream: "S", From: from, To: to}
	}
	var unknown time.Time
	for _, c := range []struct {
		damages  []embedded.Damage
		from, to time.Time
	}{
		{[]embedded.Damage{damage(at(3), at(4))}, at(3), at(4)},
		{[]embedded.Damage{damage(at(3), at(4)), damage(at(1), at(2))}, at(1), at(4)},
		{[]embedded.Damage{damage(at(1), unknown), damage(at(3), at(4))}, at(1), unknown},
		{[]embedded.Damage{damage(at(3), at(4)), damage(unknown, unknown)}, unknown, unknown},
	} {
		r := embedded.Recovery{Begun: at(0), Damages: append(c.damages, embedded.Damage{Stream: "T"})}
		from, to, ok := r.Lost("S")
		if !ok || !from.Equal(c.from) || !to.Equal(c.to) {
			t.Errorf("%v: from %s to %s, %v", c.damages, from, to, ok)
		}
	}
	if _, _, ok := new(embedded.Recovery).Lost("S"); ok {
		t.Error("nothing is damaged, and something is lost")
	}
}
