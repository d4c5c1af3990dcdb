package load

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Tally is the count of one measurement.
type Tally struct {
	Done chan struct{} // closed when the expected number has arrived

	underWay, highest atomic.Int64 // callbacks that are not answered yet, and their maximum

	mu         sync.Mutex
	want       int
	at         map[string]time.Time // of each callback's first arrival
	began, end time.Time            // the first and the last arrival
	duplicates int64
	waiting    map[string]chan time.Time
}

func newTally(want int) *Tally {
	return &Tally{
		Done: make(chan struct{}), want: want, at: make(map[string]time.Time, want),
		waiting: map[string]chan time.Time{},
	}
}

// begin notes a callback that has been read.
func (t *Tally) begin() {
	now := t.underWay.Add(1)
	for h := t.highest.Load(); now > h && !t.highest.CompareAndSwap(h, now); h = t.highest.Load() {
		continue
	}
}

// MaxAtOnce returns the maximum number of concurrent callbacks.
func (t *Tally) MaxAtOnce() int64 { return t.highest.Load() }

func (t *Tally) receive(id string, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.at[id]; known {
		t.duplicates++
		return
	}
	t.at[id] = at
	t.end = at
	if len(t.at) == 1 {
		t.began = at
	}
	if len(t.at) == t.want {
		close(t.Done)
	}
	if w, ok := t.waiting[id]; ok {
		w <- at
		delete(t.waiting, id)
	}
}

// Wait waits for a callback and returns when it arrived.
func (t *Tally) Wait(ctx context.Context, id string) (time.Time, error) {
	t.mu.Lock()
	if at, ok := t.at[id]; ok {
		t.mu.Unlock()
		return at, nil
	}
	w := make(chan time.Time, 1)
	t.waiting[id] = w
	t.mu.Unlock()
	late := time.NewTimer(AnswerWithin)
	defer late.Stop()
	select {
	case at := <-w:
		return at, nil
	case <-late.C:
		return time.Time{}, fmt.Errorf("the callback did not arrive within %s", AnswerWithin)
	case <-ctx.Done():
		return time.Time{}, ctx.Err()
	}
}

// Seen returns how many callbacks have arrived, how many of them repeatedly, and the time from the first to
// the last.
func (t *Tally) Seen() (n int, duplicates int64, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.at), t.duplicates, t.end.Sub(t.began)
}

// Arrival returns when a callback arrived.
func (t *Tally) Arrival(id string) (time.Time, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, ok := t.at[id]
	return at, ok
}

// First returns when the first one arrived.
func (t *Tally) First() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.began
}

// Arrivals returns the first arrival of each, in order.
func (t *Tally) Arrivals() []time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.SortedFunc(maps.Values(t.at), time.Time.Compare)
}
