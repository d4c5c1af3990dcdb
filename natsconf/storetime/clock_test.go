package storetime

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestWhatForbidsAJudgment(t *testing.T) {
	t.Parallel()
	now := time.Now()
	exact := func(at, store time.Time) reading { return reading{at: at, earliest: store, latest: store} }
	stepped := func(step time.Duration, when time.Time) reading {
		r := exact(now, now)
		r.step, r.stepped = step, when
		return r
	}
	c := New(nil, nil)
	for name, r := range map[string]struct {
		r      reading
		judges bool
	}{
		"nothing":               {exact(now, now), true},
		"a step":                {stepped(time.Hour, now), false},
		"a step backwards":      {stepped(-MaxSkew, now), false},
		"a step that is over":   {stepped(time.Hour, now.Add(-hold)), true},
		"a machine that is off": {exact(now, now.Add(-2*MaxSkew)), false},
		"no reading for long":   {exact(now.Add(-2*maxUnread), now.Add(-2*maxUnread)), false},
	} {
		c.last.Store(&r.r)
		if err := c.Check(); (err == nil) != r.judges || err != nil && !errors.Is(err, ErrClock) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A reading narrows what was known, or contradicts it.
func TestNextReading(t *testing.T) {
	t.Parallel()
	at := time.Now()
	store := at.Add(time.Hour)
	const ms = time.Millisecond
	last := &reading{at: at, earliest: store, latest: store.Add(100 * ms)}
	for name, r := range map[string]struct {
		off, took        time.Duration // what the answer says, after what was the earliest
		earliest, latest time.Duration
		step             time.Duration
	}{
		"the same":         {0, 100 * ms, 0, 100 * ms, 0},
		"more precise":     {40 * ms, 10 * ms, 40 * ms, 50 * ms, 0},
		"less precise":     {-time.Second, maxAnswer, 0, 100 * ms, 0},
		"the later half":   {50 * ms, 100 * ms, 50 * ms, 100 * ms, 0},
		"the earlier half": {-50 * ms, 100 * ms, 0, 50 * ms, 0},
		"a correction":     {time.Second, 10 * ms, time.Second, 1010 * ms, 0},
		"a step":           {time.Hour, 10 * ms, time.Hour, time.Hour + 10*ms, time.Hour - 100*ms},
		"a step back":      {-time.Hour, 10 * ms, -time.Hour, -time.Hour + 10*ms, -time.Hour + 10*ms},
	} {
		base := store.Add(time.Minute)
		next := last.next(base.Add(r.off), at.Add(time.Minute), r.took)
		if from, to := next.earliest.Sub(base), next.latest.Sub(base); from != r.earliest || to != r.latest ||
			next.step != r.step || next.stepped.IsZero() != (r.step == 0) {
			t.Errorf("%s: from %s to %s, a step of %s", name, from, to, next.step)
		}
	}
	first := (*reading)(nil).next(store, at, 10*ms)
	if !first.earliest.Equal(store) || !first.latest.Equal(store.Add(10*ms)) || !first.stepped.IsZero() {
		t.Errorf("the first reading is %+v", first)
	}
}

// Many who judge at once, and get no answer, wait for one request.
func TestJudgesShareAReading(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		c := New(func(context.Context) (time.Time, error) {
			asked++
			time.Sleep(500 * time.Millisecond) // in virtual time
			return time.Time{}, errors.ErrUnsupported
		}, nil)
		began := time.Now()
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				if err := c.Judge(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); asked != 1 || took != 500*time.Millisecond {
			t.Errorf("asked %d times, in %s", asked, took)
		}
	})
}

// An answer that is too slow to mean anything changes nothing, and is reported after a while.
func TestSlowAnswersAreLeftOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		took := time.Duration(0)
		c := New(func(context.Context) (time.Time, error) {
			now := time.Now()
			time.Sleep(took) // in virtual time
			return now.Add(time.Hour), nil
		}, func() time.Time { return time.Now().Add(time.Hour) })
		for _, took = range []time.Duration{0, maxAnswer, maxAnswer + time.Second} {
			time.Sleep(fresh) // in virtual time
			err := c.Judge(t.Context())
			off := c.Now().Sub(time.Now().Add(time.Hour))
			if off != 0 || (err == nil) != (took <= maxAnswer) {
				t.Errorf("answers in %s: %s off, %v", took, off, err)
			}
		}
		time.Sleep(maxUnread) // in virtual time
		if err := c.Check(); !errors.Is(err, ErrClock) {
			t.Errorf("nothing was read for long: %v", err)
		}
	})
}
