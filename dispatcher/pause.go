package dispatcher

import (
	"context"

	"verifyd/sessions/pauses"
)

// pauseOf returns the last pause of a receiver, which may have ended.
func (d *Dispatcher) pauseOf(receiver string) (pauses.Pause, bool) {
	if d.c.Pauses == nil || receiver == "" {
		return pauses.Pause{}, false
	}
	return d.c.Pauses.Of(receiver)
}

// paused reports whether nothing is to be begun at the destination. What comes meanwhile waits in its
// mailbox, as much as it may send at once; the rest goes back to JetStream, and comes again within half a
// minute.
func (t *destination) paused() bool {
	if t.receiver == "" {
		return false // it dials nobody
	}
	p, ok := t.d.pauseOf(t.receiver)
	return ok && p.On(t.d.c.Now())
}

// pauser is the actor that signals destinations when an operator has paused or resumed a host.
type pauser struct{ d *Dispatcher }

// String names the actor in the supervisor's log.
func (p *pauser) String() string { return "dispatcher pauser" }

// Serve runs until ctx ends.
func (p *pauser) Serve(ctx context.Context) error {
	for {
		changed := p.d.c.Pauses.Changed()
		p.d.destinations.recheckPauses()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// recheckPauses has every destination look at its pause.
func (r *registry) recheckPauses() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.byHost {
		signal(t.pauseChanged)
	}
}
