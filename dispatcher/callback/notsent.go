package callback

import (
	"time"

	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
)

// NotSent reports that provably nothing was sent, and why: the dial failed, or the try ended before it. It
// may be repeated later.
type NotSent struct {
	Class   failure.Class // of a dial: DNS, RefusedAddress, Connect, Proxy or TLS
	Detail  string        // one sentence for people, in lower case, without a full stop
	Timing  facts.Timing  // the steps that took place, and the total
	Address string        // the receiver's address tried last, ip:port; empty if none was
	Err     error         // the cause, for errors.Is
}

// Error returns class and detail.
func (e *NotSent) Error() string { return string(e.Class) + ": " + e.Detail }

// Unwrap returns the cause.
func (e *NotSent) Unwrap() error { return e.Err }

// stopwatch measures the steps of an attempt one after another.
type stopwatch struct{ start, last time.Time }

func startWatch() *stopwatch {
	now := time.Now()
	return &stopwatch{start: now, last: now}
}

// step returns the time since the step before.
func (w *stopwatch) step() time.Duration {
	now := time.Now()
	d := now.Sub(w.last)
	w.last = now
	return d
}

// total returns the time since the start.
func (w *stopwatch) total() time.Duration { return time.Since(w.start) }
