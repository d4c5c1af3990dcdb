package places

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"verifyd/natsconf/wait"
)

const (
	// DefaultStoreWait is how long a request waits for the store: the election of a leader takes up to 9.4 s.
	DefaultStoreWait = 12 * time.Second
	// MaxStoreWait leaves half of an answer's 30 s to a return's other half, and ends before the 15 s for
	// which a client is told to wait.
	MaxStoreWait = 14 * time.Second
)

// Waiting is how requests wait for the store: each for a bounded time, in a place of Pools.Store. Its methods
// are safe for concurrent use.
type Waiting struct {
	within time.Duration
	places *Places
}

// NewWaiting returns the given number of free places.
func NewWaiting(within time.Duration, limit int) *Waiting {
	return &Waiting{within, New(Pools.Store.Sized(limit))}
}

// Measure registers how many wait.
func (w *Waiting) Measure(r prometheus.Registerer) error {
	if err := r.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "verifyd_store_waiting_requests",
		Help: "Requests that have waited for the store for half a second or longer.",
	}, func() float64 {
		w.places.mu.Lock()
		defer w.places.mu.Unlock()
		return float64(w.places.all)
	})); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return nil
}

// Begin returns the context for a request's calls to the store, a wait.For. It ends with ctx, when the time
// is over, and when done is called, as it must be. Its error is ErrNoPlace if as many wait already as may:
// then the request is refused at once, and those that came first keep their places.
func (w *Waiting) Begin(ctx context.Context, r Request) (_ context.Context, done func(), err error) {
	release, err := w.places.Acquire(r)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := wait.For(ctx, w.within-r.Waited)
	return ctx, func() { cancel(); release() }, nil
}

// Within returns how long each waits.
func (w *Waiting) Within() time.Duration { return w.within }
