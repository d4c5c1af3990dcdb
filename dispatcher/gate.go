package dispatcher

import (
	"context"
	"sync/atomic"
)

// maxPendingClaims is how many claims may wait for their acknowledgement before no more deliveries are
// begun: a few batches.
const maxPendingClaims = 512

// gate keeps this process from starting more than JetStream can keep up with: each delivery that waits for
// its claim holds a connection and a goroutine, and one that waits too long must not be sent. Slow receivers
// do not count: what hangs there has its claim.
type gate struct {
	inside atomic.Int64
	relief chan struct{} // a token when there is room again
}

func newGate() *gate { return &gate{relief: make(chan struct{}, 1)} }

func (g *gate) enter() { g.inside.Add(1) }

func (g *gate) leave() {
	if g.inside.Add(-1) == maxPendingClaims {
		signal(g.relief)
	}
}

// wait returns when there is room, or ctx has ended.
func (g *gate) wait(ctx context.Context) {
	for g.inside.Load() > maxPendingClaims {
		select {
		case <-g.relief:
		case <-ctx.Done():
			return
		}
	}
	signal(g.relief) // there may be others who wait
}
