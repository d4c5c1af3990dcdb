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

// reserve is the part of the places that is kept for requests that must pass.
const reserve = 8

// Waiting is how requests wait for the store: each for a bounded time, and no more at once than there is room
// for. Nobody's requests keep out all others': they may have as many places as are still free. So one who is
// alone has half of them, two have a third each, and there is always one for who has none. Its methods are
// safe for concurrent use.
type Waiting struct {
	within time.Duration
	limit  int
	epoch  time.Time

	mu  sync.Mutex
	all tally
	of  map[string]*tally // by whose they are
}

// tally counts requests under way.
type tally struct {
	all   int
	began map[time.Duration]int // by the period in which they began
}

// waiting counts those that began before the last period.
func (t *tally) waiting(now time.Duration) int { return t.all - t.began[now] - t.began[now-1] }

// count records that a request of a period begins or ends.
func (t *tally) count(period time.Duration, by int) {
	t.all += by
	if t.began[period] += by; t.began[period] == 0 {
		delete(t.began, period)
	}
}

// NewWaiting returns the given number of free places.
func NewWaiting(within time.Duration, limit int) *Waiting {
	return &Waiting{within: within, limit: limit, epoch: time.Now(),
		all: tally{began: map[time.Duration]int{}}, of: map[string]*tally{}}
}

// Measure registers how many wait.
func (w *Waiting) Measure(r prometheus.Registerer) error {
	if err := r.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "verifyd_store_waiting_requests",
		Help: "Requests that have waited for the store for half a second or longer.",
	}, func() float64 {
		w.mu.Lock()
		defer w.mu.Unlock()
		return float64(w.all.waiting(w.period()))
	})); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return nil
}

// Request is who waits, and how.
type Request struct {
	Of     string        // whose it is: an account's owner, or the site of an address (SiteOf)
	Must   bool          // it passes where others no longer do: a start, a return, a change
	Waited time.Duration // how much of its time is over
}

// Begin returns the context for a request's calls to the store, a wait.For. It ends with ctx, when the time
// is over, and when done is called, as it must be. Its error is ErrNoPlace if as many wait already as may:
// then the request is refused at once, and those that came first keep their places.
func (w *Waiting) Begin(ctx context.Context, r Request) (_ context.Context, done func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	period := w.period()
	if !w.admits(r, period) {
		return nil, nil, ErrNoPlace
	}
	w.count(r.Of, period, 1)
	ctx, cancel := wait.For(ctx, w.within-r.Waited)
	return ctx, func() {
		cancel()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.count(r.Of, period, -1)
	}, nil
}

// Within returns how long each waits.
func (w *Waiting) Within() time.Duration { return w.within }

func (w *Waiting) period() time.Duration { return time.Since(w.epoch) / waitsAfter }

// admits reports whether a request may wait. What somebody has beyond half of the places, since it all came
// at once, is not taken from others. w.mu is held.
func (w *Waiting) admits(r Request, now time.Duration) bool {
	if w.all.waiting(now) == 0 {
		return true
	}
	most, free := max(w.limit/2, 1), w.limit
	for _, t := range w.of {
		free -= min(t.waiting(now), most)
	}
	if !r.Must {
		free -= w.limit / reserve
	}
	own := 0
	if t := w.of[r.Of]; t != nil {
		own = t.waiting(now)
	}
	return own < min(most, free)
}

// count records that a request of a period begins or ends. w.mu is held.
func (w *Waiting) count(of string, period time.Duration, by int) {
	w.all.count(period, by)
	t := w.of[of]
	if t == nil {
		t = &tally{began: map[time.Duration]int{}}
		w.of[of] = t
	}
	if t.count(period, by); t.all == 0 {
		delete(w.of, of)
	}
}
