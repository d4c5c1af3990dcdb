package pauses

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/rs/zerolog"

	"verifyd/natsconf"
	"verifyd/natsconf/topology"
)

// Mirror is the actor that keeps all pauses in memory, by watching the bucket. Dispatchers ask it before each
// attempt. It may be served again after it stopped; what it knew stays in use meanwhile.
type Mirror struct {
	conn *natsconf.Conn
	log  zerolog.Logger
	now  atomic.Pointer[map[string]Pause]

	fresh natsconf.Freshness

	loaded chan struct{} // closed when everything there is was seen once
	once   sync.Once

	mu      sync.Mutex
	changed chan struct{} // closed at the next change
}

// NewMirror returns a mirror that knows of no pause until it is served.
func NewMirror(c *natsconf.Conn, log zerolog.Logger) *Mirror {
	m := &Mirror{conn: c, log: log, loaded: make(chan struct{}), changed: make(chan struct{})}
	m.now.Store(&map[string]Pause{})
	return m
}

// String names the actor in the supervisor's log.
func (m *Mirror) String() string { return "pauses" }

// Of returns the last pause of a host, which may have ended.
func (m *Mirror) Of(host string) (Pause, bool) {
	p, ok := (*m.now.Load())[host]
	return p, ok
}

// Loaded returns a channel that is closed when the mirror has seen everything there is for the first time.
func (m *Mirror) Loaded() <-chan struct{} { return m.loaded }

// Changed returns a channel that is closed at the next change.
func (m *Mirror) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

// Serve mirrors until ctx ends, or the bucket has lost entries that were seen in it: then everything must be
// read again.
func (m *Mirror) Serve(ctx context.Context) error {
	w := m.conn.Watch(ctx, topology.BucketOperations, prefix+">", &m.fresh)
	defer w.Close()
	next, whole := map[string]Pause{}, false
	for {
		select {
		case e, ok := <-w.Updates():
			switch {
			case !ok:
				return w.Err()
			case e == nil:
				whole = true
			default:
				m.apply(next, e)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
		if whole && len(w.Updates()) == 0 {
			m.publish(maps.Clone(next))
		}
	}
}

func (m *Mirror) apply(next map[string]Pause, e *natsconf.Entry) {
	p, err := decode(e.Value)
	if err != nil {
		m.log.Error().Err(err).Msg("a pause cannot be read; its host is sent to")
		return
	}
	next[p.Host] = p
}

// publish replaces what is known, and notifies callers that wait for a change.
func (m *Mirror) publish(all map[string]Pause) {
	m.now.Store(&all)
	m.once.Do(func() { close(m.loaded) })
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.changed)
	m.changed = make(chan struct{})
}
