package dispatcher

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/thejerf/suture/v4"

	"verifyd/dispatcher/bounds"
	"verifyd/natsconf/crashpoint"
)

const (
	// maxWaiting bounds the deliveries that wait at one destination.
	maxWaiting = MaxConnections
	// fastFrom is how many deliveries a second a destination must send for others to wait until it has room:
	// to deliver a message and take it back costs more than that wait. The wait ends after roomWait, also if
	// a destination is too young to have a rate.
	fastFrom = 2000
	roomWait = 250 * time.Millisecond
	// A delivery whose destination had no room comes again when there should be some, at the latest after a
	// pause that doubles each time, within these bounds.
	minFullPause = 500 * time.Millisecond
	maxFullPause = 25 * time.Second
)

// destination is the actor of one receiver host. Only it owns the connections to it, bounds how many are in
// use and how many deliveries are under way, and stops dialling for a while if the host cannot be reached.
type destination struct {
	d           *shared
	host        string                  // its name in the registry
	receiver    string                  // the host and port that it dials; empty if it dials none
	owner       string                  // the account whose delivery it was made for
	work        context.Context         //nolint:containedctx // the context that work under way lives on
	retire      func(*destination) bool // forgets it, unless something came in meanwhile
	ready       chan struct{}           // a token when something may begin, or has ended
	mailbox     *bounds.Queues[*delivery]
	place       bounds.Waiter // in the budget
	breaker     *breaker
	connections *connections
	born        time.Time
	// refused counts the deliveries that found no room during a pause. If they are few, they should come soon
	// after it; if they are many, they may wait for hours, and each return takes time from other hosts.
	refused atomic.Int64

	// State that only the actor's own goroutine uses.
	starting *delivery // out of the mailbox and not begun: lost if the actor failed just there
	looked   time.Time // when it last checked what nothing signals
}

// newDestination makes the destination of a delivery, and of those that follow it to the same host.
func newDestination(d *shared, host string, dl *delivery, work context.Context,
	retire func(*destination) bool) *destination {
	ready := make(chan struct{}, 1)
	t := &destination{
		d: d, host: host, receiver: dl.receiver(), owner: dl.Account, work: work, retire: retire,
		ready: ready, born: time.Now(),
		mailbox: bounds.NewQueues[*delivery](maxWaiting, ready), place: bounds.Waiter{Ready: ready},
		breaker: newBreaker(d),
	}
	t.connections = newConnections(d.c.Connections, t.breaker, ready)
	return t
}

// String names the actor in the supervisor's log.
func (t *destination) String() string { return "destination " + t.host }

// Serve delivers what comes into the mailbox until ctx ends or nothing comes for a while.
func (t *destination) Serve(ctx context.Context) error {
	defer t.drain()
	t.looked = time.Now()
	wake := time.NewTimer(t.d.c.Idle)
	defer wake.Stop()
	for {
		t.startReady(ctx)
		wake.Reset(t.nextWake())
		select {
		case <-t.ready:
		case <-wake.C:
			t.looked = time.Now()
			if t.paused() {
				t.handBack(t.d.outlasted) // when they come again, they are given up
			}
			if t.connections.quiet(t.d.c.Idle) && !t.breaker.open() && t.retire(t) {
				return suture.ErrDoNotRestart
			}
		case <-ctx.Done():
			t.handBack(nil)
			return ctx.Err()
		}
	}
}

// startReady starts as many of the waiting deliveries as it may.
func (t *destination) startReady(ctx context.Context) {
	for ctx.Err() == nil {
		slot, wait := t.take()
		if t.starting == nil {
			break
		}
		if slot == nil {
			t.postpone(wait)
			continue
		}
		dl := t.starting
		t.starting = nil // from here on it belongs to deliver
		t.d.metrics.inFlight.Inc()
		go func() {
			t.d.deliver(t.work, dl, slot)
			t.d.budget.Release(dl.Account)
			t.d.metrics.inFlight.Dec()
			t.connections.ended()
		}()
	}
	t.d.budget.ReleaseUnused(&t.place)
}

// take takes the next delivery that may begin out of the mailbox, and makes it the starting one. Its slot is
// nil while the breaker is open, unless it is time to give the delivery up; without a slot it may try again
// after wait.
func (t *destination) take() (slot *connSlot, wait time.Duration) {
	if t.paused() {
		return nil, 0
	}
	t.connections.mu.Lock()
	defer t.connections.mu.Unlock()
	dl, ok := t.mailbox.Take(func(account string) bool {
		return t.connections.canStart(account) && t.d.budget.Acquire(account, &t.place)
	})
	if !ok {
		return nil, 0
	}
	t.starting = dl
	crashpoint.Reach(crashpoint.Taken)
	report, wait := t.breaker.allow()
	if report == nil && t.d.now().Before(t.d.giveUpAt(dl)) {
		return nil, wait
	}
	return t.connections.start(dl.Account, report), 0
}

// postpone returns the delivery that was taken and not started to JetStream.
func (t *destination) postpone(wait time.Duration) {
	dl := t.starting
	t.starting = nil
	t.d.budget.Release(dl.Account)
	t.d.held.remove(dl.ID, dl.Account)
	t.d.dispose(dl, retryIn(wait))
}

// nextWake returns how long until the next check of what nothing signals: connections to close, a pause that
// ends, deliveries that a pause outlasts, and whether to retire.
func (t *destination) nextWake() time.Duration {
	rest := t.d.c.Idle - time.Since(t.looked)
	if left, ok := t.connections.closeUnused(); ok {
		rest = min(rest, left)
	}
	if p, ok := t.d.pauseOf(t.receiver); ok {
		if left := p.End().Sub(t.d.c.Now()); left > 0 {
			rest = min(rest, left)
		}
	}
	return max(rest, 0)
}

// paused reports whether nothing may begin at the destination. Deliveries that come meanwhile wait in its
// mailbox, as many as it may send at once; the rest go back to JetStream, and come again within half a
// minute.
func (t *destination) paused() bool {
	p, ok := t.d.pauseOf(t.receiver)
	return ok && p.On(t.d.c.Now())
}

// handBack returns the deliveries that have not begun, and that wanted selects, to another dispatcher, or to
// this one's next start. A nil wanted selects all.
func (t *destination) handBack(wanted func(*delivery) bool) {
	for _, dl := range t.mailbox.RemoveAll(wanted) {
		t.d.held.remove(dl.ID, dl.Account)
		_ = dl.msg.Nak()
	}
}

// drain waits for the deliveries under way, which end by themselves or by the abort. It also runs when the
// actor panics.
func (t *destination) drain() {
	if t.starting != nil {
		t.postpone(0)
	}
	t.d.budget.Remove(&t.place)
	for !t.connections.closeAll() {
		<-t.ready
	}
}

// worthWaiting reports whether a full destination will have room in a moment, also for the account.
func (t *destination) worthWaiting(account string) bool {
	return !t.paused() && (t.connections.rate() >= fastFrom || time.Since(t.born) < roomWait) &&
		!t.d.budget.IsWaiting(account)
}

// fullPause returns the pause of a delivery that found no room and was delivered this many times.
func fullPause(given int) time.Duration {
	return min(minFullPause<<min(given-1, 8), maxFullPause)
}

// fullPause returns the pause of a delivery that found no room at t.
func (t *destination) fullPause(given int) time.Duration {
	if !t.paused() {
		t.refused.Store(0)
	} else if t.refused.Add(1) > maxWaiting {
		return maxFullPause
	}
	pause := fullPause(given)
	if rate := t.connections.rate(); rate > 0 {
		// Not longer than the doubled pause: the recent deliveries may have been all that there were, and the
		// destination idle long before.
		pause = min(pause, time.Duration(maxWaiting)*time.Second/time.Duration(rate))
	}
	return min(max(pause, minFullPause), maxFullPause)
}
