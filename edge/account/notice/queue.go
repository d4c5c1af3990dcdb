package notice

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

const (
	// maxOffered bounds the notices that wait for the store; beyond it causes go unreported, and the log
	// records that.
	maxOffered = 1000
	// known is how long a reported cause is remembered. One that is seen for longer is looked up in the store
	// again, once.
	known = 12 * time.Hour
	// flushEvery is how often notices that could not be stored are tried again.
	flushEvery = 5 * time.Second
	// lastFlush bounds the last try, at a stop.
	lastFlush = 5 * time.Second
)

// Queue is the actor that stores notices for callers that must not wait for the store. A cause may be offered
// as often as it is seen.
type Queue struct {
	store   *Store
	log     zerolog.Logger
	offered chan struct{} // has one if something is new

	mu     sync.Mutex
	open   map[string]Notice    // by id
	stored map[string]time.Time // by id; when
}

// NewQueue returns a queue. Nothing is stored until it is served.
func NewQueue(s *Store, log zerolog.Logger) *Queue {
	return &Queue{
		store: s, log: log, offered: make(chan struct{}, 1), open: map[string]Notice{},
		stored: map[string]time.Time{},
	}
}

// String names the actor in the supervisor's log.
func (q *Queue) String() string { return "notice queue" }

// Offer takes a notice that is to be stored, and returns at once.
func (q *Queue) Offer(n Notice) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, ok := q.open[n.ID]; ok {
		return
	}
	if _, ok := q.stored[n.ID]; ok {
		return
	}
	if len(q.open) >= maxOffered {
		q.log.Warn().Str("account", n.Account).Str("type", string(n.Type)).
			Msg("too many notices wait for the store; an account is not notified")
		return
	}
	q.open[n.ID] = n
	select {
	case q.offered <- struct{}{}:
	default:
	}
}

// Serve stores offered notices until ctx ends, and then tries once more to store the rest.
func (q *Queue) Serve(ctx context.Context) error {
	again := time.NewTicker(flushEvery)
	defer again.Stop()
	for {
		select {
		case <-q.offered:
		case <-again.C:
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastFlush)
			defer cancel()
			q.flush(last)
			return ctx.Err()
		}
		q.flush(ctx)
	}
}

func (q *Queue) flush(ctx context.Context) {
	for _, n := range q.waiting(time.Now()) {
		err := q.store.Raise(ctx, n)
		if Later(err) {
			q.log.Warn().Err(err).Str("account", n.Account).Str("type", string(n.Type)).
				Msg("a notice cannot be stored; it is tried again")
			return
		}
		if err != nil {
			q.log.Warn().Err(err).Str("account", n.Account).Str("type", string(n.Type)).
				Msg("an account is not notified")
		}
		q.mu.Lock()
		delete(q.open, n.ID)
		q.stored[n.ID] = time.Now()
		q.mu.Unlock()
	}
}

// waiting returns the notices to be stored, and forgets those that were stored long ago.
func (q *Queue) waiting(now time.Time) []Notice {
	q.mu.Lock()
	defer q.mu.Unlock()
	for id, at := range q.stored {
		if now.Sub(at) >= known {
			delete(q.stored, id)
		}
	}
	all := make([]Notice, 0, len(q.open))
	for _, n := range q.open {
		all = append(all, n)
	}
	return all
}
