package dispatcher

import (
	"testing"
	"time"
)

// A destination that has sent little lately, because there was little to send, does not keep a sudden crowd
// waiting: deliveries without a slot return soon at first. If it is really slow, the pauses grow to what its
// rate implies.
func TestFullPauseFollowsTheRateFromBelow(t *testing.T) {
	busy := func(rate int64) *destination {
		return &destination{d: &shared{}, connections: &connections{
			pace: pace{rate: rate, until: time.Now().Add(time.Hour)},
		}}
	}
	for _, c := range []struct {
		to    *destination
		given int
		want  time.Duration
	}{
		{busy(0), 1, minFullPause},
		{busy(0), 3, 4 * minFullPause},
		{busy(0), 20, maxFullPause},
		{busy(40), 1, minFullPause},
		{busy(40), 20, maxFullPause},
		{busy(512), 2, 2 * minFullPause},
		{busy(512), 20, 2 * time.Second},
		{busy(100_000), 20, minFullPause},
	} {
		if got := c.to.fullPause(c.given); got != c.want {
			t.Errorf("at %d a second, given %d times: %s, want %s", c.to.connections.rate(), c.given, got,
				c.want)
		}
	}
}
