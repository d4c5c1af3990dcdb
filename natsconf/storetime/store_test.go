package storetime_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/storetime"
)

// Whatever a machine's clock shows, and whenever it is set, its processes have the store's time, and judge
// only while the clocks agree.
func TestClockIsTheStores(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	natstest.StartIn(t, dir)
	var ahead atomic.Int64 // of the machine's clock
	conn := natstest.ConnectTo(t, natstest.URL(t, dir), func(o *natsconf.ConnectOptions) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	clock := conn.Clock
	if err := clock.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, d := range []time.Duration{
		0, storetime.MaxSkew, -40 * time.Second, 0, 8 * 24 * time.Hour, -time.Hour, 0,
	} {
		ahead.Store(int64(d))
		if off := time.Since(clock.Now()); off.Abs() >= storetime.MaxSkew {
			t.Errorf("set to %s ahead: %s off the store's time", d, off)
		}
		// Skew is of two readings of a clock.
		if skew := clock.Skew(); (skew - d).Abs() >= storetime.MaxSkew {
			t.Errorf("set to %s ahead: a skew of %s", d, skew)
		}
		err := clock.Judge(t.Context())
		if d == 0 && err != nil || d.Abs() > storetime.MaxSkew && !errors.Is(err, storetime.ErrClock) {
			t.Errorf("set to %s ahead: %v", d, err)
		}
	}
}

func TestClockWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	clock := conn.Clock
	off := time.Since(clock.Now())
	if off.Abs() >= storetime.MaxSkew || clock.Skew() != 0 || clock.Check() != nil {
		t.Errorf("before the first reading: %s off, %v", off, clock.Check())
	}
	conn.NC.Close()
	if err := clock.Judge(t.Context()); !errors.Is(err, natsconf.ErrUnavailable) {
		t.Errorf("without the store: %v", err)
	}
}
