package dispatcher

import (
	"context"
	"sync"
	"time"

	"github.com/thejerf/suture/v4"

	"verifyd/dispatcher/bounds"
	"verifyd/natsconf/fleet"
)

const (
	// crowdedFrom is the number of held deliveries from which a destination has room for no more of each
	// account than it may send at once: hanging deliveries cannot use up the whole room.
	crowdedFrom = 8192
	// maxDestinations bounds all destinations, about 6.5 KiB each with their goroutine; accounts share them.
	// Deliveries that do not fit go back to JetStream.
	maxDestinations = 24 << 10
)

// registry makes destinations on first use and removes them when they retire.
type registry struct {
	d *shared

	mu         sync.Mutex
	work       context.Context    //nolint:containedctx // the context that work under way lives on, from open to close
	supervisor *suture.Supervisor // nil while not serving
	byHost     map[string]*destination
	hosts      bounds.Share // of the destinations, by the account that each was made for
}

func newRegistry(d *shared) *registry {
	return &registry{
		d: d, byHost: map[string]*destination{}, hosts: bounds.NewShare(maxDestinations, maxDestinations),
	}
}

func (r *registry) open(work context.Context, s *suture.Supervisor) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.work, r.supervisor = work, s
}

// close hands back the deliveries that came too late for a destination that had stopped already. All
// destinations have.
func (r *registry) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.supervisor = nil
	for _, t := range r.byHost {
		t.handBack(nil)
		t.breaker.forget(r.d.metrics)
		r.hosts.Drop(t.owner)
	}
	clear(r.byHost)
	r.d.metrics.known.Set(0)
}

// enqueue puts a delivery into its destination's mailbox, or back into JetStream if there is no room.
func (r *registry) enqueue(ctx context.Context, dl *delivery) {
	held, room := r.d.held.add(dl.ID, dl.Account, dl.msg)
	if held {
		// another copy is still being worked on; this one comes again after AckWait, and meets the facts
		return
	}
	if !room {
		_ = dl.msg.NakWithDelay(fullPause(dl.given))
		return
	}
	to, pause := r.tryEnqueue(dl)
	if pause != 0 && to != nil && to.worthWaiting(dl.Account) && to.mailbox.AwaitSpace(ctx, roomWait) {
		_, pause = r.tryEnqueue(dl)
	}
	if pause != 0 {
		r.d.held.remove(dl.ID, dl.Account)
		_ = dl.msg.NakWithDelay(pause)
	}
}

// tryEnqueue holds the lock while it enqueues, so that a destination cannot retire with a delivery in its
// mailbox. It returns the destination, nil if there is none, and the pause of the delivery, if that found no
// room.
func (r *registry) tryEnqueue(dl *delivery) (to *destination, pause time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.supervisor == nil {
		return nil, minFullPause // this process is stopping
	}
	if to = r.byHost[destinationOf(dl)]; to == nil {
		if !r.hosts.Allows(dl.Account) {
			return nil, fullPause(dl.given)
		}
		to = r.add(dl)
	}
	limit := maxWaiting
	if r.d.held.count() > crowdedFrom || to.paused() {
		limit = r.d.c.Connections
	}
	if !to.mailbox.Put(dl.Account, dl, limit, r.d.c.Connections) {
		return to, to.fullPause(dl.given)
	}
	return to, 0
}

// destinationOf returns the name of a delivery's destination: the host and port of its callback. A refused
// URL has none, and one that a pause has outlasted needs none: such deliveries share one actor. Tests have an
// actor apart from that of live callbacks: a developer who listens with a test key and does not answer holds
// up only tests.
func destinationOf(dl *delivery) string {
	switch {
	case dl.barred != nil:
		return "refused"
	case dl.Test:
		return dl.receiver() + " (tests)"
	}
	return dl.receiver()
}

// add makes the destination of a delivery.
func (r *registry) add(dl *delivery) *destination {
	to := newDestination(r.d, destinationOf(dl), dl, r.work, r.retire)
	r.hosts.Add(to.owner)
	r.byHost[to.host] = to
	r.d.metrics.known.Inc()
	r.supervisor.Add(to)
	return to
}

// retire forgets a destination, unless something came in meanwhile.
func (r *registry) retire(to *destination) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if to.mailbox.Len() > 0 {
		return false
	}
	delete(r.byHost, to.host)
	r.hosts.Drop(to.owner)
	to.breaker.forget(r.d.metrics)
	r.d.metrics.known.Dec()
	return true
}

// recheckPauses makes every destination check its pause.
func (r *registry) recheckPauses() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.byHost {
		bounds.Signal(t.ready)
	}
}

// worst returns the receiver hosts at which something waits, or that do not answer, worst first.
func (r *registry) worst() []fleet.Host {
	r.mu.Lock()
	defer r.mu.Unlock()
	var hosts []fleet.Host
	for _, t := range r.byHost {
		if t.receiver == "" {
			continue // it is not dialled
		}
		h := t.breaker.snapshot()
		h.Host, h.Waiting = t.receiver, t.mailbox.Len()
		if h.Waiting > 0 || h.Breaker != fleet.BreakerClosed {
			hosts = append(hosts, h)
		}
	}
	fleet.SortHosts(hosts)
	return hosts[:min(len(hosts), fleet.MaxHosts)]
}

// followPauses signals destinations when an operator has paused or resumed a host, until ctx ends.
func (r *registry) followPauses(ctx context.Context) error {
	for {
		changed := r.d.c.Pauses.Changed()
		r.recheckPauses()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
