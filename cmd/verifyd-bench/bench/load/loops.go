package load

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Step is one operation of one client. It belongs to one goroutine.
type Step func(ctx context.Context) error

// ErrNoMore ends a client: its input is used up.
var ErrNoMore = errors.New("nothing is left to work on")

const (
	// errorPause keeps clients of a dead server from spinning, maxErrors ends them.
	errorPause = 10 * time.Millisecond
	maxErrors  = 100
)

// Result is what a measurement of clients gave.
type Result struct {
	Latencies []time.Duration // of the successful operations, sorted
	Errors    int64
	FirstErr  error
	Took      time.Duration
}

// Ops returns the number of successful operations.
func (l Result) Ops() int64 { return int64(len(l.Latencies)) }

// Rate returns the number of successful operations a second.
func (l Result) Rate() float64 {
	if l.Took <= 0 {
		return 0
	}
	return float64(len(l.Latencies)) / l.Took.Seconds()
}

// client is one goroutine's part of a load.
type client struct {
	Result

	inARow int // errors since the last successful operation
}

// run does one operation, whose latency counts from began, and reports whether to continue.
func (c *client) run(ctx context.Context, do Step, began time.Time) (now time.Time, more bool) {
	err := do(ctx)
	now = time.Now()
	switch {
	case err == nil:
		c.inARow = 0
		c.Latencies = append(c.Latencies, now.Sub(began))
		return now, true
	case errors.Is(err, ErrNoMore), ctx.Err() != nil:
		return now, false
	}
	c.Errors++
	c.inARow++
	if c.FirstErr == nil {
		c.FirstErr = err
	}
	select {
	case <-time.After(errorPause):
	case <-ctx.Done():
	}
	return time.Now(), c.inARow < maxErrors
}

// Closed makes each client do operations without a pause for the duration.
func Closed(ctx context.Context, duration time.Duration, steps []Step) Result {
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

// ClosedNumber makes the clients do n operations in total.
func ClosedNumber(ctx context.Context, n int, steps []Step) Result {
	var left atomic.Int64
	left.Store(int64(n))
	counted := make([]Step, len(steps))
	for i, do := range steps {
		counted[i] = func(ctx context.Context) error {
			if left.Add(-1) < 0 {
				return ErrNoMore
			}
			return do(ctx)
		}
	}
	return Closed(ctx, time.Hour, counted)
}

// Paced begins operations at a fixed rate for the duration. The latency of an operation counts from its
// scheduled instant, including the time that it waited for a free client.
func Paced(ctx context.Context, rate float64, duration time.Duration, steps []Step) Result {
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
	Pace(ctx, rate, n, func(at time.Time) { due <- at })
	close(due)
	wg.Wait()
	return gather(clients, time.Since(began))
}

// Pace calls do n times at a rate, each with its scheduled instant, or until ctx ends. If it is late it
// catches up at once.
func Pace(ctx context.Context, rate float64, n int, do func(at time.Time)) {
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

func gather(clients []client, took time.Duration) Result {
	parts := make([]Result, len(clients))
	for i, c := range clients {
		parts[i] = c.Result
	}
	l := Join(parts)
	l.Took = took
	return l
}

// Join returns one load from parts that ran sequentially.
func Join(parts []Result) (l Result) {
	for _, p := range parts {
		l.Latencies = append(l.Latencies, p.Latencies...)
		l.Errors += p.Errors
		l.Took += p.Took
		if l.FirstErr == nil {
			l.FirstErr = p.FirstErr
		}
	}
	slices.Sort(l.Latencies)
	return l
}

// InParallel does n pieces of work on several goroutines and returns the first error.
func InParallel(ctx context.Context, workers, n int, do func(ctx context.Context, i int) error) error {
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
