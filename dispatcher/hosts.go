package dispatcher

import (
	"verifyd/natsconf/fleet"
)

// Hosts returns the receiver hosts at which something waits in this process, or where nobody answers, worst
// first.
func (d *Dispatcher) Hosts() []fleet.Host {
	d.destinations.mu.Lock()
	defer d.destinations.mu.Unlock()
	var hosts []fleet.Host
	for _, t := range d.destinations.byHost {
		if t.receiver == "" {
			continue // dialled by nobody
		}
		h := t.breaker.snapshot()
		h.Host, h.Waiting = t.receiver, t.mailbox.count()
		if h.Waiting > 0 || h.Breaker != fleet.BreakerClosed {
			hosts = append(hosts, h)
		}
	}
	fleet.SortHosts(hosts)
	return hosts[:min(len(hosts), fleet.HostsMost)]
}

// Backlog returns the backlog of the whole service as it was measured last; nil before the first time.
func (d *Dispatcher) Backlog() *fleet.Backlog { return d.backlog.Load() }

// snapshot returns the state of the breaker.
func (b *breaker) snapshot() fleet.Host {
	// this may change the state, so the lock below is not held yet
	h := fleet.Host{Breaker: b.circuit.State().String()}
	b.mu.Lock()
	defer b.mu.Unlock()
	h.Since = b.since
	if n := b.lastFailure; n != nil {
		h.Class, h.Detail = string(n.Class), n.Detail
	}
	return h
}
