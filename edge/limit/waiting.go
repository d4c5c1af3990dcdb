package limit

import (
	"context"
	"fmt"
	"sync"
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
	// DefaultWaiting is how many requests of a process wait at once, at up to 80 KB each.
	DefaultWaiting = 1000
	// waitsAfter is how long after its beginning a request counts as waiting: it is in its second period of
	// that length, or a later one. Without faults a request takes milliseconds, so that no crowd comes near
	// the bound.
	waitsAfter = 500 * time.Millisecond
)

// Waiting is how requests wait for the store: each for a bounded time, and no more at once than there is room
// for. Its methods are safe for concurrent use.
type Waiting struct {
	within time.Duration
	limit  int
	epoch  time.Time

	mu    sync.Mutex
	all   int
	began map[time.Duration]int // requests under way, by the period in which they began
}

// NewWaiting returns the given number of free places.
func NewWaiting(within time.Duration, limit int) *Waiting {
	return &Waiting{within: within, limit: limit, epoch: time.Now(), began: map[time.Duration]int{}}
}

// Measure registers how many wait.
func (w *Waiting) Measure(r prometheus.Registerer) error {
	if err := r.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "verifyd_store_waiting_requests",
		Help: "Requests that have waited for the store for half a second or longer.",
	}, func() float64 {
		w.mu.Lock()
		defer w.mu.Unlock()
		return float64(w.waiting(w.period()))
	})); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return nil
}

// Begin returns the context for a request's calls to the store, a wait.For. It ends with ctx, when the time
// is over, of which the request has waited some already, and when done is called, as it must be. Its error is
// ErrNoPlace if as many wait already as may: then the request is refused at once, and those that came first
// keep their places.
func (w *Waiting) Begin(ctx context.Context, waited time.Duration) (_ context.Context, done func(),
	err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	period := w.period()
	if w.waiting(period) >= w.limit {
		return nil, nil, ErrNoPlace
	}
	w.count(period, 1)
	ctx, cancel := wait.For(ctx, w.within-waited)
	return ctx, func() {
		cancel()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.count(period, -1)
	}, nil
}

// Within returns how long each waits.
func (w *Waiting) Within() time.Duration { return w.within }

func (w *Waiting) period() time.Duration { return time.Since(w.epoch) / waitsAfter }

// waiting counts those that began before the last period. w.mu is held.
func (w *Waiting) waiting(now time.Duration) int { return w.all - w.began[now] - w.began[now-1] }

// count records that a request of a period begins or ends. w.mu is held.
func (w *Waiting) count(period time.Duration, by int) {
	w.all += by
	if w.began[period] += by; w.began[period] == 0 {
		delete(w.began, period)
	}
}
