// Package storetime is the time by which processes judge each other: that of the store, which all of them
// have, whatever the clocks of their machines show.
package storetime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"verifyd/natsconf/wait"
)

const (
	// MaxSkew is how far a machine's clock, and the clock of one server from another's, may be from the
	// store's time. From there on a process judges nothing that others wrote.
	MaxSkew = 5 * time.Second
	// readEvery is how often the store's time is read.
	readEvery = 10 * time.Second
	// fresh is how old a reading may be on which a judgment rests.
	fresh = time.Second
	// maxAnswer is how long an answer may take: it may be wrong by half of that. Of a slow one, only what
	// contradicts earlier ones counts.
	maxAnswer = 2 * time.Second
	// maxUnread is how long the time may not be read until that is reported.
	maxUnread = time.Minute
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
	last    atomic.Pointer[reading]
	turn    chan struct{} // holds one: its taker reads, and owns what follows
	failed  time.Time     // when the last reading failed; zero: it did not
	failure error
}

// reading is what is known of the store's time at an instant of the monotonic clock.
type reading struct {
	at               time.Time
	earliest, latest time.Time
	step             time.Duration // the last step of the store's time
	stepped          time.Time     // when it was seen; zero: never
}

// now returns the middle of what the store's time may be.
func (r *reading) now() time.Time {
	return r.earliest.Add(r.latest.Sub(r.earliest)/2 + time.Since(r.at))
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
		return r.now()
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
	r := c.last.Load()
	switch {
	case r == nil:
		return nil
	case !r.stepped.IsZero() && time.Since(r.stepped) < hold:
		return fmt.Errorf("%w: the store's stepped by %s, %s ago; synchronize its servers' clocks", ErrClock,
			r.step.Round(time.Millisecond), time.Since(r.stepped).Round(time.Second))
	case time.Since(r.at) > maxUnread:
		return fmt.Errorf("%w: the store's could not be read for %s", ErrClock,
			time.Since(r.at).Round(time.Second))
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
	switch {
	case last != nil && time.Since(last.at) < fresh:
		return nil
	case !c.failed.IsZero() && time.Since(c.failed) < fresh: // those who wait do not ask one after the other
		return c.failure
	}
	asked := time.Now()
	store, err := c.ask(ctx)
	took := time.Since(asked)
	if err == nil && took > maxAnswer {
		err = fmt.Errorf("the answer took %s", took.Round(time.Millisecond))
	}
	c.failed = time.Time{}
	if err != nil {
		c.failed, c.failure = time.Now(), fmt.Errorf("the store's time: %w", err)
		return c.failure
	}
	c.last.Store(last.next(store, asked.Add(took), took))
	return nil
}

// next returns the reading after r, which is nil for the first: at an instant, the store's time is answered,
// after a request that took a while.
func (r *reading) next(store, at time.Time, took time.Duration) *reading {
	next := &reading{at: at, earliest: store, latest: store.Add(took)}
	if r == nil {
		return next
	}
	next.step, next.stepped = r.step, r.stepped
	since := at.Sub(r.at)
	earliest, latest := r.earliest.Add(since), r.latest.Add(since)
	switch {
	case latest.Before(next.earliest.Add(-MaxSkew)):
		next.step, next.stepped = next.earliest.Sub(latest), at
	case earliest.After(next.latest.Add(MaxSkew)):
		next.step, next.stepped = next.latest.Sub(earliest), at
	case !latest.Before(next.earliest) && !earliest.After(next.latest): // it is where both are true
		next.earliest = slices.MaxFunc([]time.Time{earliest, next.earliest}, time.Time.Compare)
		next.latest = slices.MinFunc([]time.Time{latest, next.latest}, time.Time.Compare)
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
	wrong := false
	return wait.Every(ctx, readEvery, func(ctx context.Context) {
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
	})
}
