package dispatcher

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thejerf/suture/v4"
)

const (
	// maxWaiting bounds what waits at one destination. From crowdedFrom on that this process holds at all, a
	// destination has room for no more than it may send at once, of each account: hanging deliveries cannot
	// use that up. maxHeld is all that may be held, about 2 KiB each, and maxDestinations all destinations,
	// about 6.5 KiB each with their goroutine; accounts share both. What does not fit goes back to
	// JetStream.
	maxWaiting      = 1024
	crowdedFrom     = 8192
	maxHeld         = 32 << 10
	maxDestinations = 24 << 10
	// fastFrom is how many deliveries a second a destination has to send for others to wait until there is
	// room at it: delivering and taking back costs more than that wait. It ends after roomWait, also where a
	// destination is too young to tell.
	fastFrom = 2000
	roomWait = 250 * time.Millisecond
	// A delivery whose destination had no room comes again when there should be some, and at the latest
	// after a pause that is doubled each time, within these bounds.
	minFullPause = 500 * time.Millisecond
	maxFullPause = 25 * time.Second
	// connIdle is how long an unused connection is kept. Receivers close idle ones after a few seconds, and
	// a request written to a connection that is being closed ends as unknown.
	connIdle = time.Second
)

// registry makes destinations on first use and removes them when they retire.
type registry struct {
	d *Dispatcher

	mu         sync.Mutex
	work       context.Context    //nolint:containedctx // the context that work under way lives on, from open to close
	supervisor *suture.Supervisor // nil while not serving
	byHost     map[string]*destination
	hosts      share // of the destinations, by the account that each was made for
}

func newRegistry(d *Dispatcher) *registry {
	return &registry{
		d: d, byHost: map[string]*destination{}, hosts: newShare(maxDestinations, maxDestinations),
	}
}

func (r *registry) open(work context.Context, s *suture.Supervisor) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.work, r.supervisor = work, s
}

// close hands back what came in too late for a destination that had stopped already. All of them have.
func (r *registry) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.supervisor = nil
	for _, t := range r.byHost {
		t.handBack()
		t.breaker.forget(r.d.metrics)
		r.hosts.drop(t.owner)
	}
	clear(r.byHost)
	r.d.metrics.known.Set(0)
}

// enqueue puts a delivery into its destination's mailbox, or back into JetStream where there is no room.
func (r *registry) enqueue(ctx context.Context, dl *delivery) {
	held, room := r.d.inFlight.add(dl)
	if held {
		// another copy is still being worked on; this one comes again after AckWait, and meets the facts
		return
	}
	if !room {
		_ = dl.msg.NakWithDelay(fullPause(dl.given))
		return
	}
	r.d.metrics.held.Inc()
	to, pause := r.tryEnqueue(dl)
	if pause != 0 && to != nil && to.worthWaiting(dl.Account) && to.mailbox.awaitRoom(ctx, roomWait) {
		_, pause = r.tryEnqueue(dl)
	}
	if pause != 0 {
		r.done(dl)
		_ = dl.msg.NakWithDelay(pause)
	}
}

// worthWaiting reports whether room at a full destination is a matter of a moment, also for the account.
func (t *destination) worthWaiting(account string) bool {
	return !t.paused() && (t.pace.perSecond() >= fastFrom || time.Since(t.born) < roomWait) &&
		!t.d.budget.isWaiting(account)
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
	if rate := t.pace.perSecond(); rate > 0 {
		// Not longer than the doubled pause: what was sent lately may be all that there was to send, and the
		// destination be idle long before.
		pause = min(pause, time.Duration(maxWaiting)*time.Second/time.Duration(rate))
	}
	return min(max(pause, minFullPause), maxFullPause)
}

// tryEnqueue holds the lock while it puts, so that a destination cannot retire with a delivery in its
// mailbox. It returns the destination, nil where there is none, and, where the delivery found no room, after
// how long it comes again.
func (r *registry) tryEnqueue(dl *delivery) (to *destination, pause time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.supervisor == nil {
		return nil, minFullPause // this process is stopping
	}
	if to = r.byHost[dl.host()]; to == nil {
		if !r.hosts.allows(dl.Account) {
			return nil, fullPause(dl.given)
		}
		to = r.add(dl)
	}
	limit := maxWaiting
	if r.d.inFlight.count() > crowdedFrom || to.paused() {
		limit = r.d.c.Connections
	}
	if !to.mailbox.put(dl, limit, r.d.c.Connections) {
		return to, to.fullPause(dl.given)
	}
	return to, 0
}

// add makes the destination of a delivery.
func (r *registry) add(dl *delivery) *destination {
	to := newDestination(r.d, dl.host(), dl.receiver(), r.work)
	to.owner = dl.Account
	r.hosts.add(to.owner)
	r.byHost[to.host] = to
	r.d.metrics.known.Inc()
	r.supervisor.Add(to)
	return to
}

// retire forgets a destination, unless something came in meanwhile.
func (r *registry) retire(to *destination) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !to.mailbox.empty() {
		return false
	}
	delete(r.byHost, to.host)
	r.hosts.drop(to.owner)
	to.breaker.forget(r.d.metrics)
	r.d.metrics.known.Dec()
	return true
}

// done ends this process's hold on a delivery.
func (r *registry) done(dl *delivery) {
	r.d.inFlight.remove(dl)
	r.d.metrics.held.Dec()
}

// destination is the actor of one receiver host. It alone owns the connections to it, bounds how many are in
// use and how many deliveries are under way, and stops dialling for a while where nothing can be reached.
type destination struct {
	d            *Dispatcher
	host         string          // its name in the registry
	receiver     string          // the host and port that it dials; empty where it dials nobody
	owner        string          // the account whose delivery it was made for
	work         context.Context //nolint:containedctx // the context that work under way lives on
	mailbox      *mailbox
	breaker      *breaker
	pace         pace
	born         time.Time
	pauseChanged chan struct{} // holds a token when a pause may have begun or ended
	// distrusted: the receiver has sent unsolicited bytes. What comes next over a connection to it may be
	// too late for the request before, so none is used twice any more.
	distrusted atomic.Bool
	// refused counts what found no room in a pause. Few are to come soon after it; of many, which may wait
	// for hours, each return takes time from other hosts.
	refused atomic.Int64

	// The budget's, under its lock: the accounts for which it waits there, and those for which it was
	// granted an attempt.
	waitsFor map[string]bool
	granted  []string
}

func newDestination(d *Dispatcher, host, receiver string, work context.Context) *destination {
	return &destination{
		d: d, host: host, receiver: receiver, work: work, mailbox: newMailbox(), breaker: newBreaker(d),
		born: time.Now(), pauseChanged: make(chan struct{}, 1),
	}
}

// String names the actor in the supervisor's log.
func (t *destination) String() string { return "destination " + t.host }

// Serve delivers what comes into the mailbox until ctx ends or nothing comes for a while.
func (t *destination) Serve(ctx context.Context) error {
	s := newHostWorker(t)
	defer s.drain()
	wake := time.NewTimer(t.d.c.Idle)
	defer wake.Stop()
	for {
		s.startReady(ctx)
		select {
		case <-t.mailbox.ready:
		case p := <-s.requests:
			s.enqueue(p)
		case p := <-s.cancellations:
			s.dequeue(p)
		case well := <-s.dialEnds:
			s.dialEnded(well)
		case r := <-s.releases:
			s.released(r)
			wake.Reset(connIdle) // the connection may have to be closed then
		case <-s.done:
			s.deliveryEnded()
		case <-t.pauseChanged:
			wake.Reset(s.nextWake()) // a pause that has begun may end before the timer was to tell
		case <-wake.C:
			s.closeIdle(connIdle)
			t.handBackOutlasted()
			if s.active == 0 && time.Since(s.last) >= t.d.c.Idle && !t.breaker.open() &&
				t.d.destinations.retire(t) {
				return suture.ErrDoNotRestart
			}
			wake.Reset(s.nextWake())
		case <-ctx.Done():
			t.handBack()
			return ctx.Err()
		}
	}
}

// handBack returns what has not begun to another dispatcher, or to this one's next start.
func (t *destination) handBack() {
	for dl := t.mailbox.take(nil); dl != nil; dl = t.mailbox.take(nil) {
		t.d.destinations.done(dl)
		_ = dl.msg.Nak()
	}
}

// pace is how many deliveries per second a destination has sent lately. The actor counts; the registry reads
// as well.
type pace struct {
	sent  int
	since time.Time

	rate  atomic.Int64
	until atomic.Int64 // Unix nanoseconds; after which the rate does not count
}

func (p *pace) count() {
	now := time.Now()
	p.sent++
	if p.since.IsZero() || now.Sub(p.since) > paceFor {
		p.sent, p.since = 0, now
		return
	}
	if took := now.Sub(p.since); took >= paceEvery {
		p.rate.Store(int64(float64(p.sent) / took.Seconds()))
		p.until.Store(now.Add(paceFor).UnixNano())
		p.sent, p.since = 0, now
	}
}

// perSecond returns the rate, 0 where the destination has sent too little lately to have one.
func (p *pace) perSecond() int64 {
	if time.Now().UnixNano() > p.until.Load() {
		return 0
	}
	return p.rate.Load()
}
