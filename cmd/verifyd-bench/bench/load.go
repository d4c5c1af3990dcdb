package bench

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// step is one operation of one client. It belongs to one goroutine.
type step func(ctx context.Context) error

// errNoMore ends a client: what it worked through is used up.
var errNoMore = errors.New("nothing is left to work on")

const (
	// errorPause keeps clients of a dead server from spinning, maxErrors ends them.
	errorPause = 10 * time.Millisecond
	maxErrors  = 100
)

// load is what a measurement of clients gave.
type load struct {
	latencies []time.Duration // of the operations that went well, sorted
	errors    int64
	firstErr  error
	took      time.Duration
}

func (l load) ops() int64 { return int64(len(l.latencies)) }

func (l load) rate() float64 {
	if l.took <= 0 {
		return 0
	}
	return float64(len(l.latencies)) / l.took.Seconds()
}

// client is one goroutine's part of a load.
type client struct {
	latencies []time.Duration
	errors    int64
	inARow    int
	firstErr  error
}

// run does one operation, which counts from began on, and reports whether to go on.
func (c *client) run(ctx context.Context, do step, began time.Time) (now time.Time, more bool) {
	err := do(ctx)
	now = time.Now()
	switch {
	case err == nil:
		c.inARow = 0
		c.latencies = append(c.latencies, now.Sub(began))
		return now, true
	case errors.Is(err, errNoMore), ctx.Err() != nil:
		return now, false
	}
	c.errors++
	c.inARow++
	if c.firstErr == nil {
		c.firstErr = err
	}
	select {
	case <-time.After(errorPause):
	case <-ctx.Done():
	}
	return time.Now(), c.inARow < maxErrors
}

// closedLoop lets each client do one operation after the other for the duration.
func closedLoop(ctx context.Context, duration time.Duration, steps []step) load {
	clients := make([]client, len(steps))
	var wg sync.WaitGroup
	began := time.Now()
	until := began.Add(duration)
	for i, do := range steps {
		wg.Go(func() {
			for now, more := began, true; more && now.Before(until) && ctx.Err() == nil; {
				now, more = clients[i].run(ctx, do, now)
			}
		})
	}
	wg.Wait()
	return gather(clients, time.Since(began))
}

// closedNumber lets the clients do n operations in all.
func closedNumber(ctx context.Context, n int, steps []step) load {
	var left atomic.Int64
	left.Store(int64(n))
	counted := make([]step, len(steps))
	for i, do := range steps {
		counted[i] = func(ctx context.Context) error {
			if left.Add(-1) < 0 {
				return errNoMore
			}
			return do(ctx)
		}
	}
	return closedLoop(ctx, time.Hour, counted)
}

// pacedLoop begins operations at a fixed rate for the duration. An operation counts from the instant for
// which it was scheduled, the time included that it waited for a client to be free.
func pacedLoop(ctx context.Context, rate float64, duration time.Duration, steps []step) load {
	clients := make([]client, len(steps))
	n := max(1, int(rate*duration.Seconds()))
	due := make(chan time.Time, n)
	var wg sync.WaitGroup
	for i, do := range steps {
		wg.Go(func() {
			for at := range due {
				if _, more := clients[i].run(ctx, do, at); !more {
					return
				}
			}
		})
	}
	began := time.Now()
	pace(ctx, rate, n, func(at time.Time) { due <- at })
	close(due)
	wg.Wait()
	return gather(clients, time.Since(began))
}

// pace calls do n times at a rate, each with the instant it was scheduled for, or until ctx ends. When it is
// late it catches up at once.
func pace(ctx context.Context, rate float64, n int, do func(at time.Time)) {
	began := time.Now()
	for i := range n {
		at := began.Add(time.Duration(math.Round(float64(i) / rate * float64(time.Second))))
		for wait := time.Until(at); wait > 0; wait = time.Until(at) {
			preciseSleep(wait)
		}
		if ctx.Err() != nil {
			return
		}
		do(at)
	}
}

func gather(clients []client, took time.Duration) load {
	l := load{took: took}
	for _, c := range clients {
		l.latencies = append(l.latencies, c.latencies...)
		l.errors += c.errors
		if l.firstErr == nil {
			l.firstErr = c.firstErr
		}
	}
	slices.Sort(l.latencies)
	return l
}

// inParallel does n pieces of work on some goroutines and returns the first error.
func inParallel(ctx context.Context, workers, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(workers, n) {
		wg.Go(func() {
			for i := range next {
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := range n {
		select {
		case next <- i:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
	}
	close(next)
	wg.Wait()
	return context.Cause(ctx)
}
