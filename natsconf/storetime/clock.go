// Package storetime is the time by which processes judge each other: that of the store, which all of them
// have, whatever the clocks of their machines show.
package storetime

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

const (
	// MaxSkew is how far a machine's clock, and the clock of one server from another's, may be from the
	// store's time. From there on a process judges nothing that others wrote.
	MaxSkew = 5 * time.Second
	// readEvery is how often the store's time is read.
	readEvery = 10 * time.Second
	// fresh is how old a reading may be on which a judgment rests.
	fresh = time.Second
	// maxAnswer is how long an answer may take: it may be wrong by half of that.
	maxAnswer = 250 * time.Millisecond
	// hold is how long nothing is judged after the store's time has stepped, like that of a server whose
	// clock was set. Claims from before the step have ended then.
	hold = 2 * time.Minute
)

// ErrClock reports that a process must not judge what others wrote: its clock, or the store's, is wrong.
var ErrClock = errors.New("clock")

// Clock is the store's time, as a process knows it. All that processes conclude about each other's writes is
// concluded by it, so that it does not matter whose machine's clock is wrong. It reads the clock of the
// server that leads the outcomes, which gives them their timestamps, and goes on with the machine's monotonic
// clock in between: setting the machine's clock changes nothing.
//
// The machine's clock is compared with it. A difference of MaxSkew or more, or a step of the store's own
// time, is reported, and until it ends, Judge refuses.
type Clock struct {
	ask     func(ctx context.Context) (time.Time, error)
	machine func() time.Time
	turn    chan struct{} // holds one: its taker reads
	last    atomic.Pointer[reading]
}

// reading is the store's time at an instant of the monotonic clock.
type reading struct {
	store, at time.Time
	step      time.Duration // of the last step of the store's time
	stepped   time.Time     // when it was seen; zero: never
}

// New returns the clock of a process. ask asks the store for its time, once; machine is the machine's clock,
// time.Now when nil.
func New(ask func(ctx context.Context) (time.Time, error), machine func() time.Time) *Clock {
	if machine == nil {
		machine = time.Now
	}
	c := &Clock{ask: ask, machine: machine, turn: make(chan struct{}, 1)}
	c.turn <- struct{}{}
	return c
}

// Now returns the store's time; the machine's as long as it was never read.
func (c *Clock) Now() time.Time {
	if r := c.last.Load(); r != nil {
		return r.store.Add(time.Since(r.at))
	}
	return c.machine()
}

// Skew returns how far the machine's clock is ahead of the store's time; 0 as long as that was never read.
func (c *Clock) Skew() time.Duration {
	if c.last.Load() == nil {
		return 0
	}
	return c.machine().Sub(c.Now())
}

// Check returns why this process must not judge what others wrote, as far as is known without asking the
// store: ErrClock, or nil.
func (c *Clock) Check() error {
	if skew := c.Skew(); skew.Abs() >= MaxSkew {
		way := "ahead of"
		if skew < 0 {
			way = "behind"
		}
		return fmt.Errorf("%w: this machine's is %s %s the store's; set it", ErrClock,
			skew.Abs().Round(time.Millisecond), way)
	}
	if r := c.last.Load(); r != nil && !r.stepped.IsZero() && time.Since(r.stepped) < hold {
		return fmt.Errorf("%w: the store's stepped by %s, %s ago; synchronize its servers' clocks", ErrClock,
			r.step.Round(time.Millisecond), time.Since(r.stepped).Round(time.Second))
	}
	return nil
}

// Judge returns nil if this process may judge now, by the store's time, what others wrote: settle their
// claims, give up what they began, end their alarms, delete what has expired. It reads that time first,
// unless the last reading is less than a second old. Its errors are ErrClock and Read's.
func (c *Clock) Judge(ctx context.Context) error {
	if err := c.Read(ctx); err != nil {
		return err
	}
	return c.Check()
}

// Read reads the store's time, unless that was done within the last second. Its errors are those of asking.
func (c *Clock) Read(ctx context.Context) error {
	select {
	case <-c.turn:
	case <-ctx.Done():
		return fmt.Errorf("the store's time: %w", ctx.Err())
	}
	defer func() { c.turn <- struct{}{} }()
	last := c.last.Load()
	if last != nil && time.Since(last.at) < fresh {
		return nil
	}
	asked := time.Now()
	store, err := c.ask(ctx)
	took := time.Since(asked)
	if err == nil && took > maxAnswer {
		err = fmt.Errorf("the answer took %s", took.Round(time.Millisecond))
	}
	if err != nil {
		return fmt.Errorf("the store's time: %w", err)
	}
	c.last.Store(last.next(store.Add(took/2), asked.Add(took), took))
	return nil
}

// next returns the reading after r, which is nil for the first: the store's time at an instant, after a
// request that took a while.
func (r *reading) next(store, at time.Time, took time.Duration) *reading {
	next := &reading{store: store, at: at}
	if r == nil {
		return next
	}
	next.step, next.stepped = r.step, r.stepped
	expected := r.store.Add(at.Sub(r.at))
	if step := store.Sub(expected); step.Abs() >= MaxSkew {
		next.step, next.stepped = step, at
		return next
	}
	// what was known is corrected by no more than the answer shows
	switch earliest, latest := store.Add(-took/2), store.Add(took/2); {
	case expected.Before(earliest):
		next.store = earliest
	case expected.After(latest):
		next.store = latest
	default:
		next.store = expected
	}
	return next
}

// Keeper is the actor that reads the store's time, and logs when the clocks become wrong, or right.
type Keeper struct {
	clock *Clock
	log   zerolog.Logger
}

// NewKeeper returns the actor.
func NewKeeper(c *Clock, log zerolog.Logger) *Keeper { return &Keeper{c, log} }

// String names the actor in the supervisor's log.
func (k *Keeper) String() string { return "clock" }

// Serve reads until ctx ends. If the store does not answer, the last reading stands.
func (k *Keeper) Serve(ctx context.Context) error {
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	for wrong := false; ; {
		_ = k.clock.Read(ctx)
		err := k.clock.Check()
		switch {
		case err != nil && !wrong:
			k.log.Error().Err(err).
				Msg("this process settles, gives up and deletes nothing until the clocks agree")
		case err == nil && wrong:
			k.log.Info().Msg("the clocks agree again")
		}
		wrong = err != nil
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
