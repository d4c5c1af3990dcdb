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
	// maxWaiting bounds what waits at one destination.
	maxWaiting = MaxConnections
	// fastFrom is how many deliveries a second a destination has to send for others to wait until there is
	// room at it: delivering and taking back costs more than that wait. It ends after roomWait, also where a
	// destination is too young to tell.
	fastFrom = 2000
	roomWait = 250 * time.Millisecond
	// A delivery whose destination had no room comes again when there should be some, and at the latest
	// after a pause that is doubled each time, within these bounds.
	minFullPause = 500 * time.Millisecond
	maxFullPause = 25 * time.Second
)

// destination is the actor of one receiver host. It alone owns the connections to it, bounds how many are in
// use and how many deliveries are under way, and stops dialling for a while where nothing can be reached.
type destination struct {
	d           *shared
	host        string                  // its name in the registry
	receiver    string                  // the host and port that it dials; empty where it dials nobody
	owner       string                  // the account whose delivery it was made for
	work        context.Context         //nolint:containedctx // the context that work under way lives on
	retire      func(*destination) bool // forgets it, unless something came in meanwhile
	ready       chan struct{}           // a token when something may begin, or has ended
	mailbox     *bounds.Queues[*delivery]
	place       bounds.Waiter // in the budget
	breaker     *breaker
	connections *connections
	born        time.Time
	// refused counts what found no room in a pause. Few are to come soon after it; of many, which may wait
	// for hours, each return takes time from other hosts.
	refused atomic.Int64

	// What the actor's own goroutine alone knows.
	starting *delivery // out of the mailbox and not begun: lost, were the actor to fail just there
	looked   time.Time // when it last looked for what nothing signals
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

// startReady starts what waits, as far as it may.
func (t *destination) startReady(ctx context.Context) {
	for ctx.Err() == nil {
		slot, wait := t.take()
		if t.starting == nil {
			break
		}
		if slot == nil {
			t.putOff(wait)
			continue
		}
		dl := t.starting
		t.starting = nil // from here on it is deliver's
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

// take takes the next delivery that may begin out of the mailbox: it is the one that is starting. Its slot is
// nil while the breaker is open, unless it is time to give it up: then it may try again after a while.
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
	reportContact, wait := t.breaker.allow()
	if reportContact == nil && t.d.now().Before(t.d.giveUpAt(dl)) {
		return nil, wait
	}
	return t.connections.start(dl.Account, reportContact), 0
}

// putOff returns what was taken and not started to JetStream.
func (t *destination) putOff(wait time.Duration) {
	dl := t.starting
	t.starting = nil
	t.d.budget.Release(dl.Account)
	t.d.inFlight.remove(dl.ID, dl.Account)
	t.d.dispose(dl, retryIn(wait))
}

// nextWake returns after how long to look for what nothing signals: connections to close, a pause that ends,
// what a pause outlasts, and whether to retire.
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

// paused reports whether nothing is to be begun at the destination. What comes meanwhile waits in its
// mailbox, as much as it may send at once; the rest goes back to JetStream, and comes again within half a
// minute.
func (t *destination) paused() bool {
	p, ok := t.d.pauseOf(t.receiver)
	return ok && p.On(t.d.c.Now())
}

// handBack returns what has not begun, and is wanted, to another dispatcher, or to this one's next start. A
// nil wanted wants all.
func (t *destination) handBack(wanted func(*delivery) bool) {
	for _, dl := range t.mailbox.RemoveAll(wanted) {
		t.d.inFlight.remove(dl.ID, dl.Account)
		_ = dl.msg.Nak()
	}
}

// drain waits for the deliveries under way, which end by themselves or by the abort. It also runs when the
// actor panics.
func (t *destination) drain() {
	if t.starting != nil {
		t.putOff(0)
	}
	t.d.budget.Remove(&t.place)
	for !t.connections.closeAll() {
		<-t.ready
	}
}

// worthWaiting reports whether room at a full destination is a matter of a moment, also for the account.
func (t *destination) worthWaiting(account string) bool {
	return !t.paused() && (t.connections.rate() >= fastFrom || time.Since(t.born) < roomWait) &&
		!t.d.budget.IsWaiting(account)
}

// fullPause returns after how long a delivery comes again that was given out so often and found no room.
func fullPause(given int) time.Duration {
	return min(minFullPause<<min(given-1, 8), maxFullPause)
}

// fullPause returns it for one that found no room at t.
func (t *destination) fullPause(given int) time.Duration {
	if !t.paused() {
		t.refused.Store(0)
	} else if t.refused.Add(1) > maxWaiting {
		return maxFullPause
	}
	pause := fullPause(given)
	if rate := t.connections.rate(); rate > 0 {
		// Not longer than the doubled pause: what was sent lately may be all that there was to send, and the
		// destination be idle long before.
		pause = min(pause, time.Duration(maxWaiting)*time.Second/time.Duration(rate))
	}
	return min(max(pause, minFullPause), maxFullPause)
}
