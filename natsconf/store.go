package natsconf

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	// storePoll is how often the store's use is asked for; at 40,000 messages of 1 KiB a second it moves by 40 MiB in between.
	storePoll = time.Second
	// storeHigh is the share of the limit from which no new sessions are taken, so that open ones can still complete and be
	// delivered.
	storeHigh = 0.9
)

// StoreGauge is the actor that watches how full the store is.
type StoreGauge struct {
	conn  *Conn
	limit int64 // of an embedded store; 0: ask the server
	used  atomic.Int64
	most  atomic.Int64
}

// NewStoreGauge makes the gauge. limit is the embedded store's size limit in bytes, 0 for an external server, whose account
// limit counts then.
func NewStoreGauge(c *Conn, limit int64) *StoreGauge {
	g := &StoreGauge{conn: c, limit: limit}
	g.most.Store(limit)
	return g
}

// Serve asks once a second until ctx ends. While the server does not answer, the last figures stand.
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
	ctx, cancel := context.WithTimeout(ctx, bootTry)
	defer cancel()
	info, err := g.conn.JS.AccountInfo(ctx)
	if err != nil {
		return
	}
	g.used.Store(int64(info.Store)) //nolint:gosec // a store of 2^63 bytes is not near
	if g.limit == 0 && info.Limits.MaxStore > 0 {
		g.most.Store(info.Limits.MaxStore)
	}
}

// Use gives the bytes used and the limit; a limit of 0 means none is known.
func (g *StoreGauge) Use() (used, limit int64) { return g.used.Load(), g.most.Load() }

// High says that the store is above nine tenths of its limit.
func (g *StoreGauge) High() bool {
	used, limit := g.Use()
	return limit > 0 && float64(used) > storeHigh*float64(limit)
}
