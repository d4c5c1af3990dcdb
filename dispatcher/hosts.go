package dispatcher

import (
	"verifyd/sessions/roster"
)

// Hosts tells of the receiver hosts at which something waits in this process, or where nobody answers: the worst first.
func (d *Dispatcher) Hosts() []roster.Host {
	d.destinations.mu.Lock()
	defer d.destinations.mu.Unlock()
	var hosts []roster.Host
	for _, t := range d.destinations.byHost {
		if t.receiver == "" {
			continue // dialled by nobody
		}
		h := t.breaker.seen()
		h.Host, h.Waiting = t.receiver, t.mailbox.count()
		if h.Waiting > 0 || h.Breaker != roster.BreakerClosed {
			hosts = append(hosts, h)
		}
	}
	roster.SortHosts(hosts)
	return hosts[:min(len(hosts), roster.HostsMost)]
}

// Backlog gives the backlog of the whole service as it was measured last; nil before the first time.
func (d *Dispatcher) Backlog() *roster.Backlog { return d.backlog.Load() }

// seen tells how the breaker stands.
func (b *breaker) seen() roster.Host {
	h := roster.Host{Breaker: b.two.State().String()} // it may turn, so that the lock below is not held yet
	b.mu.Lock()
	defer b.mu.Unlock()
	h.Since = b.since
	if n := b.trouble; n != nil {
		h.Class, h.Detail = string(n.Class), n.Detail
	}
	return h
}
