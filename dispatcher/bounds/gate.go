package bounds

import (
	"context"
	"sync/atomic"
)

// Gate keeps a process from starting more work than the part behind it can keep up with. Work that is inside
// counts. None is refused, but a caller that starts more waits until little enough is inside.
type Gate struct {
	limit  int64
	inside atomic.Int64
	relief chan struct{} // a token when there is room again
}

// NewGate returns a gate that lets more start while at most the given number are inside.
func NewGate(limit int) *Gate { return &Gate{limit: int64(limit), relief: make(chan struct{}, 1)} }

// Enter records that one more is inside.
func (g *Gate) Enter() { g.inside.Add(1) }

// Leave records that one is no longer inside.
func (g *Gate) Leave() {
	if g.inside.Add(-1) == g.limit {
		Signal(g.relief)
	}
}

// Wait returns when there is room, or ctx has ended.
func (g *Gate) Wait(ctx context.Context) {
	for g.inside.Load() > g.limit {
		select {
		case <-g.relief:
		case <-ctx.Done():
			return
		}
	}
	Signal(g.relief) // there may be others who wait
}
