package storestate

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"verifyd/natsconf"
)

// statePollEvery is how often a service reads its store's state. A move that finishes waits for open claims
// longer than that; the seal of the streams decides.
const statePollEvery = 500 * time.Millisecond

// Monitor is the actor that watches whether the store is still in service. While the store does not answer,
// the last state that was read counts.
type Monitor struct {
	conn *natsconf.Conn
	log  zerolog.Logger

	mu     sync.Mutex
	now    Record
	opened chan struct{}   // closed while the store is in service
	open   context.Context //nolint:containedctx // it ends when the store leaves service
	leave  context.CancelFunc
}

// NewMonitor makes a monitor for a store that Open has found in service.
func NewMonitor(c *natsconf.Conn, log zerolog.Logger) *Monitor {
	w := &Monitor{conn: c, log: log, now: Record{State: StateOpen}, opened: make(chan struct{})}
	w.markOpen()
	return w
}

// markOpen records that the store is in service.
func (w *Monitor) markOpen() {
	w.open, w.leave = context.WithCancel(context.Background())
	close(w.opened)
}

// String names the actor in the supervisor's log.
func (w *Monitor) String() string { return "store's standing" }

// Serve polls until ctx ends.
func (w *Monitor) Serve(ctx context.Context) error {
	tick := time.NewTicker(statePollEvery)
	defer tick.Stop()
	for {
		if s, err := Read(ctx, w.conn); err == nil && s.State != "" {
			w.see(s)
		}
		select {
		case <-tick.C:
		case <-w.conn.Abandoned():
			w.abandon()
			<-ctx.Done()
			return ctx.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// abandon takes the store out of service for as long as this process runs: it has failed.
func (w *Monitor) abandon() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now.State == StateOpen {
		w.leave()
		w.opened = make(chan struct{})
	}
	w.now.State = ""
}

func (w *Monitor) see(s Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.now.State
	w.now = s
	switch s.State {
	case before:
	case StateOpen:
		w.markOpen()
		w.log.Info().Msg("the store is in service again")
	default:
		if before == StateOpen {
			w.leave()
			w.opened = make(chan struct{})
		}
		w.log.Warn().Err(&Error{s}).
			Msg("the store is leaving service; nothing is delivered from it any more")
	}
}

// Check returns why nothing can be stored, or nil: a store that is being drained still accepts sessions and
// outcomes. It sends no request: the acknowledgement of a message that is stored after it is checked
// (Conn.Durable).
func (w *Monitor) Check() error { return w.among(StateOpen, StateDraining) }

// CheckDeliveries returns why no delivery begins, or nil.
func (w *Monitor) CheckDeliveries() error { return w.among(StateOpen) }

// among returns nil if the store is in one of these states.
func (w *Monitor) among(states ...State) error {
	if err := w.conn.Noticed(); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Contains(states, w.now.State) {
		return nil
	}
	return &Error{w.now}
}

// While waits until the store is in service and returns a context that ends with ctx, and as soon as the
// store leaves service. If ctx ends first the error is ctx's.
func (w *Monitor) While(ctx context.Context) (context.Context, context.CancelFunc, error) {
	w.mu.Lock()
	opened := w.opened
	w.mu.Unlock()
	select {
	case <-opened:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	inner, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(w.open, cancel)
	return inner, func() { stop(); cancel() }, nil
}
