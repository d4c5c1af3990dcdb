// Package hosts reports where callbacks wait, host by host. What dispatchers see, what operators paused and
// what is stored as due are three partial views: no dispatcher has a delivery that waits for its schedule,
// and a host whose address may not be reached has no breaker that opens. Every page and command that shows
// receiver hosts reads them here, so that all of them show the same.
package hosts

import (
	"cmp"
	"context"
	"slices"
	"time"

	"verifyd/natsconf/fleet"
	"verifyd/sessions/facts"
	"verifyd/sessions/lists"
	"verifyd/sessions/pauses"
	"verifyd/sessions/store"
	"verifyd/sessions/timeline"
)

const (
	// dueWithin is how long one report looks back for deliveries that are due, and maxDue how many it
	// counts.
	dueWithin = 3 * time.Second
	maxDue    = 2000
	// maxReasons bounds the hosts whose last failed try is looked up: a read each.
	maxReasons = 50
)

// State is the state of a receiver host.
type State string

// The states of a host.
const (
	Paused      State = "paused"         // by an operator
	Unreachable State = "nobody answers" // the breaker is not closed
	Waiting     State = "waiting"        // the last try of a delivery that is due there failed
	Open        State = "sent to"
)

// order is the order of a report's hosts.
var order = map[State]int{Paused: 0, Unreachable: 1, Waiting: 2, Open: 3}

// Host is a receiver host with everything that is known about it.
type Host struct {
	fleet.Host

	Due    int       // deliveries that are due to it
	Oldest time.Time // since when the oldest of them is
	Pause  *pauses.Pause

	newest facts.View // of the due deliveries; its last try shows why
	missed bool       // its last try failed
}

// Waits returns how many deliveries wait for the host: as many as are stored, or as a dispatcher holds if
// those were not all counted.
func (h Host) Waits() int { return max(h.Due, h.Waiting) }

// State returns the state of the host.
func (h Host) State() State {
	switch {
	case h.Pause != nil:
		return Paused
	case h.Breaker != fleet.BreakerClosed:
		return Unreachable
	case h.missed:
		return Waiting
	default:
		return Open
	}
}

// Report is what is known about all receiver hosts: paused ones first, then those that do not answer, then by
// what waits.
type Report struct {
	Hosts []Host
	// BackTo is how far back due deliveries were counted, if there may be older ones; zero otherwise.
	BackTo time.Time
}

// NewReport joins what the processes report with what is stored. Its error is natsconf.ErrUnavailable.
func NewReport(ctx context.Context, processes []fleet.Process, book *pauses.Store,
	stored *store.Store) (Report, error) {
	paused, err := book.List(ctx)
	if err != nil {
		return Report{}, err
	}
	r := Report{}
	for _, p := range paused {
		r.host(p.Host).Pause = &p
	}
	for _, seen := range fleet.Hosts(processes) {
		r.host(seen.Host).Host = seen
	}
	if err := r.countDue(ctx, stored); err != nil {
		return Report{}, err
	}
	r.explain(ctx, stored)
	slices.SortStableFunc(r.Hosts, func(a, b Host) int {
		return cmp.Or(cmp.Compare(order[a.State()], order[b.State()]), cmp.Compare(b.Waits(), a.Waits()))
	})
	return r, nil
}

// host returns the row of a host, a new one if there is none.
func (r *Report) host(name string) *Host {
	i := slices.IndexFunc(r.Hosts, func(h Host) bool { return h.Host.Host == name })
	if i < 0 {
		i = len(r.Hosts)
		r.Hosts = append(r.Hosts, Host{Host: fleet.Host{Host: name, Breaker: fleet.BreakerClosed}})
	}
	return &r.Hosts[i]
}

// countDue counts the deliveries that are due, as far as it gets.
func (r *Report) countDue(ctx context.Context, stored *store.Store) error {
	ctx, cancel := context.WithTimeout(ctx, dueWithin)
	defer cancel()
	found, err := stored.FindDeliveries(ctx, lists.DeliveryQuery{
		States: []facts.DeliveryState{facts.DeliveryDue, facts.DeliveryClaimed}, Limit: maxDue,
	})
	if err != nil {
		return err
	}
	r.BackTo = found.BackTo
	for _, v := range found.Views {
		h := r.host(timeline.Host(v.Session))
		h.Due++
		if h.newest.ID == "" {
			h.newest = v
		}
		if h.Oldest.IsZero() || v.CompletedAt.Before(h.Oldest) {
			h.Oldest = v.CompletedAt
		}
	}
	return nil
}

// explain reads why the newest due delivery was not sent, if no dispatcher knows.
func (r *Report) explain(ctx context.Context, stored *store.Store) {
	reads := 0
	for i := range r.Hosts {
		h := &r.Hosts[i]
		if h.newest.ID == "" || h.Detail != "" || reads == maxReasons {
			continue
		}
		reads++
		stored.Explain(ctx, &h.newest)
		if w := h.newest.Delivery.Waiting; w != nil {
			h.Class, h.Detail, h.missed = string(w.Class), timeline.Cause(w.Class, w.Detail), true
		}
	}
}
