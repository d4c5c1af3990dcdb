package natsconf

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

const (
	// storePoll is how often the store's use is asked for; at 10,000 of the largest sessions a second it
	// moves by 30 MiB in between.
	storePoll = 250 * time.Millisecond
	// storeHigh is the share of the limit from which no new sessions are taken, so that open ones can still
	// complete and be delivered.
	storeHigh = 0.9
	// MinFreeBytes is the space below which no new sessions are taken, under the store's limit and on its
	// filesystem: room for what storePoll lets pass, for what is open, and for the server's own files.
	MinFreeBytes = 64 << 20
	// MinStoreBytes is the smallest limit of a store with which that leaves room for sessions.
	MinStoreBytes = 256 << 20
)

// StoreGauge is the actor that watches how full the store is.
type StoreGauge struct {
	conn     *Conn
	embedded *Embedded // nil for an external server, whose account limit counts
	used     atomic.Int64
	most     atomic.Int64
	free     atomic.Int64
}

// NewStoreGauge makes the gauge of the embedded store, or of an external server's where embedded is nil.
func NewStoreGauge(c *Conn, embedded *Embedded) *StoreGauge {
	g := &StoreGauge{conn: c, embedded: embedded}
	g.free.Store(MinFreeBytes)
	if embedded != nil {
		g.most.Store(embedded.o.StoreBytes)
	}
	return g
}

// Serve asks every storePoll until ctx ends. While the server does not answer, the last figures stand.
func (g *StoreGauge) Serve(ctx context.Context) error {
	tick := time.NewTicker(storePoll)
	defer tick.Stop()
	for {
		g.readOnce(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// String names the actor in the supervisor's log.
func (g *StoreGauge) String() string { return "store gauge" }

func (g *StoreGauge) readOnce(ctx context.Context) {
	if g.embedded != nil {
		if free, err := FreeBytes(g.embedded.o.DataDir); err == nil {
			g.free.Store(free)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, bootTry)
	defer cancel()
	info, err := g.conn.JS.AccountInfo(ctx)
	if err != nil {
		return
	}
	g.used.Store(int64(info.Store)) //nolint:gosec // a store of 2^63 bytes is not near
	if g.embedded == nil && info.Limits.MaxStore > 0 {
		g.most.Store(info.Limits.MaxStore)
	}
}

// Use returns the bytes used and the limit; a limit of 0 means none is known.
func (g *StoreGauge) Use() (used, limit int64) { return g.used.Load(), g.most.Load() }

// High reports whether there is no room for new sessions.
func (g *StoreGauge) High() bool { return g.Check() != nil }

// Check returns why there is no room for new sessions, or nil.
func (g *StoreGauge) Check() error {
	used, limit := g.Use()
	// An account's limit on an external server may be small; of the embedded store's, MinStoreBytes is the
	// least.
	if limit > 0 && (float64(used) > storeHigh*float64(limit) || limit-used < min(MinFreeBytes, limit/4)) {
		return fmt.Errorf("no new sessions are taken: %d of %d bytes of the store's limit are used", used,
			limit)
	}
	if free := g.free.Load(); free < MinFreeBytes {
		return fmt.Errorf("no new sessions are taken: %d bytes are left on the store's filesystem, %d are needed", free, MinFreeBytes)
	}
	return nil
}

// errNoAnswer is returned by CheckWriters for streams that no longer answer.
var errNoAnswer = errors.New("the store does not answer writes")

// CheckWriters returns which of the writers' streams no longer answer, or nil.
func CheckWriters(writers ...*Writer) error {
	for _, w := range writers {
		if w.Silent() {
			return fmt.Errorf("%w to %s", errNoAnswer, w.stream)
		}
	}
	return nil
}
