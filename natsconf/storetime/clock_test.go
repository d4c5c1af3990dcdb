package storetime

import (
	"errors"
	"testing"
	"time"
)

// The readings of a store whose own time steps, and of a process that was stopped together with its machine's
// monotonic clock: for a while nothing is judged.
func TestStepOfTheStoresTime(t *testing.T) {
	t.Parallel()
	now := time.Now()
	c := New(nil, nil)
	for name, r := range map[string]struct {
		r      reading
		judges bool
	}{
		"no step":          {reading{store: now, at: now}, true},
		"a step":           {reading{store: now, at: now, step: time.Hour, stepped: now}, false},
		"a step backwards": {reading{store: now, at: now, step: -MaxSkew, stepped: now}, false},
		"a step that is over": {
			reading{store: now, at: now, step: time.Hour, stepped: now.Add(-hold)}, true,
		},
		"a machine that is off": {reading{store: now.Add(-2 * MaxSkew), at: now}, false},
	} {
		c.last.Store(&r.r)
		if err := c.Check(); (err == nil) != r.judges || err != nil && !errors.Is(err, ErrClock) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNextReading(t *testing.T) {
	t.Parallel()
	at := time.Now()
	store := at.Add(time.Hour)
	last := &reading{store: store, at: at}
	const took = 100 * time.Millisecond
	for name, r := range map[string]struct {
		off     time.Duration // what the answer says, from what was expected
		want    time.Duration
		stepped bool
	}{
		"as expected":            {0, 0, false},
		"within the uncertainty": {-took / 2, 0, false},
		"a correction":           {-took, -took / 2, false},
		"a step":                 {MaxSkew, MaxSkew, true},
		"a step back":            {-time.Hour, -time.Hour, true},
	} {
		next := last.next(store.Add(time.Minute+r.off), at.Add(time.Minute), took)
		got := next.store.Sub(store.Add(time.Minute))
		if got != r.want || next.stepped.IsZero() == r.stepped {
			t.Errorf("%s: off by %s, stepped %s", name, got, next.stepped)
		}
	}
	first := (*reading)(nil).next(store, at, took)
	if !first.store.Equal(store) || !first.stepped.IsZero() {
		t.Errorf("the first reading is %+v", first)
	}
}
