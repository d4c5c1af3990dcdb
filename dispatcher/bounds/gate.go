package bounds

import (
	"context"
	"sync/atomic"
)

// Gate keeps a process from starting more than what is behind it can keep up with. Who is inside counts;
// nobody is refused, but who starts more waits until few enough are.
type Gate struct {
	most   int64
	inside atomic.Int64
	relief chan struct{} // a token when there is room again
}

// NewGate makes a gate that lets more start while at most so many are inside.
func NewGate(most int) *Gate { return &Gate{most: int64(most), relief: make(chan struct{}, 1)} }

// Enter notes that one more is inside.
func (g *Gate) Enter() { g.inside.Add(1) }

// Leave notes that one is no longer inside.
func (g *Gate) Leave() {
	if g.inside.Add(-1) == g.most {
		Signal(g.relief)
	}
}

// Wait returns when there is room, or ctx has ended.
func (g *Gate) Wait(ctx context.Context) {
	for g.inside.Load() > g.most {
		select {
		case <-g.relief:
		case <-ctx.Done():
			return
		}
	}
	Signal(g.relief) // there may be others who wait
}
