package storestate

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"verifyd/natsconf"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/wait"
)

const (
	// storePoll is how often the store's use is read; at 10,000 of the largest sessions a second it changes
	// by 30 MiB in between.
	storePoll = 250 * time.Millisecond
	// storeHigh is the share of the limit from which no new sessions are accepted, so that open ones can
	// still complete and be delivered.
	storeHigh = 0.9
	// MinFreeBytes is the space below which no new sessions are accepted, under the store's limit and on its
	// filesystem: room for what is written within storePoll, for open sessions, and for the server's own
	// files.
	MinFreeBytes = 64 << 20
	// MinStoreBytes is the smallest limit of a store that leaves room for sessions on top of that.
	MinStoreBytes = 256 << 20
	// askTimeout bounds one request for the account's use.
	askTimeout = 3 * time.Second
)

// Gauge is the actor that watches how full the store is.
type Gauge struct {
	conn     *natsconf.Conn
	embedded *embedded.Server // nil for an external server, whose account limit counts
	used     atomic.Int64
	limit    atomic.Int64
	free     atomic.Int64
}

// NewGauge returns the gauge of the embedded store, or that of an external server if embedded is nil.
func NewGauge(c *natsconf.Conn, embedded *embedded.Server) *Gauge {
	g := &Gauge{conn: c, embedded: embedded}
	g.free.Store(MinFreeBytes)
	if embedded != nil {
		g.limit.Store(embedded.Limit())
	}
	return g
}

// Serve reads the use every storePoll until ctx ends. While the server does not answer, the last figures
// stay.
func (g *Gauge) Serve(ctx context.Context) error {
	return wait.Every(ctx, storePoll, g.readOnce)
}

// String names the actor in the supervisor's log.
func (g *Gauge) String() string { return "store gauge" }

func (g *Gauge) readOnce(ctx context.Context) {
	if g.embedded != nil {
		if free, err := g.embedded.Free(); err == nil {
			g.free.Store(free)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	info, err := g.conn.JS.AccountInfo(ctx)
	if err != nil {
		return
	}
	g.used.Store(int64(info.Store)) //nolint:gosec // a store of 2^63 bytes is not near
	if g.embedded == nil && info.Limits.MaxStore > 0 {
		g.limit.Store(info.Limits.MaxStore)
	}
}

// Use returns the bytes used and the limit; a limit of 0 means none is known.
func (g *Gauge) Use() (used, limit int64) { return g.used.Load(), g.limit.Load() }

// High reports whether there is no room for new sessions.
func (g *Gauge) High() bool { return g.Check() != nil }

// Check returns why there is no room for new sessions, or nil.
func (g *Gauge) Check() error {
	used, limit := g.Use()
	// An account's limit on an external server may be small; that of the embedded store is at least
	// MinStoreBytes.
	if limit > 0 && (float64(used) > storeHigh*float64(limit) || limit-used < min(MinFreeBytes, limit/4)) {
		return fmt.Errorf("no new sessions are accepted: %d of %d bytes of the store's limit are used", used,
			limit)
	}
	if free := g.free.Load(); free < MinFreeBytes {
		return fmt.Errorf("no new sessions are accepted: %d bytes are left on the store's filesystem, %d "+
			"are needed", free, MinFreeBytes)
	}
	return nil
}

// Measure shows how full the store is, in a registry.
func (g *Gauge) Measure(r prometheus.Registerer) {
	show := func(name, help string, bytes *atomic.Int64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
			func() float64 { return float64(bytes.Load()) }))
	}
	show("verifyd_store_used_bytes", "Bytes that JetStream's store has used.", &g.used)
	show("verifyd_store_limit_bytes", "Limit of JetStream's store; 0 where none is known.", &g.limit)
	if g.embedded != nil {
		show("verifyd_store_free_bytes", "Bytes left on the filesystem of the embedded store.", &g.free)
	}
}
