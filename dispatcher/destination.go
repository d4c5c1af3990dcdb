package dispatcher

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thejerf/suture/v4"
)

const (
	// waitingMost bounds what waits at one destination, and heldMost what this process holds at all, about 2 KiB each. What does
	// not fit goes back to JetStream. Up to its own connections a destination always has room: those who hang cannot take it.
	waitingMost = 1024
	heldMost    = 8192
	// fastFrom is how many deliveries a second a destination has to send for others to wait until there is room at it: giving out and
	// taking back costs more than that wait. It ends after roomWait, also where a destination is too young to tell.
	fastFrom = 2000
	roomWait = 250 * time.Millisecond
	// A delivery whose destination had no room comes again when there should be some, and at the latest after a pause that is doubled
	// each time, within these bounds.
	fullPauseLeast = 500 * time.Millisecond
	fullPauseMost  = 25 * time.Second
	// connIdle is how long an unused connection is kept. Receivers close idle ones after a few seconds, and a request written
	// to a connection that is being closed ends as unknown.
	connIdle = time.Second
)

// registry makes destinations on first use and forgets them when they retire.
type registry struct {
	d *Dispatcher

	mu         sync.Mutex
	work       context.Context    //nolint:containedctx // the context that work under way lives on, from open to close
	supervisor *suture.Supervisor // nil while not serving
	byHost     map[string]*destination
}

func newRegistry(d *Dispatcher) *registry {
	return &registry{d: d, byHost: map[string]*destination{}}
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
	}
	clear(r.byHost)
	r.d.metrics.known.Set(0)
}

// hand puts a delivery into its destination's mailbox, or back into JetStream where there is no room.
func (r *registry) hand(ctx context.Context, dl *delivery) {
	if !r.d.held.take(dl) {
		return // another copy is still being worked on; this one comes again after AckWait, and meets the facts
	}
	r.d.metrics.held.Inc()
	to, posted := r.post(dl)
	if !posted && to != nil && to.worthWaiting() && to.mailbox.awaitRoom(ctx, roomWait) {
		to, posted = r.post(dl)
	}
	if !posted {
		r.done(dl)
		_ = dl.msg.NakWithDelay(to.fullPause(dl.given))
	}
}

// worthWaiting says whether room at a full destination is a matter of a moment.
func (t *destination) worthWaiting() bool {
	return !t.paused() && (t.pace.perSecond() >= fastFrom || time.Since(t.born) < roomWait)
}

// fullPause gives after how long a delivery comes again that was given out so often and found no room. t may be nil: stopping.
func (t *destination) fullPause(given int) time.Duration {
	if t == nil {
		return fullPauseLeast
	}
	if !t.paused() {
		t.sentAway.Store(0)
	} else if t.sentAway.Add(1) > waitingMost {
		return fullPauseMost
	}
	pause := fullPauseLeast << min(given-1, 8)
	if rate := t.pace.perSecond(); rate > 0 {
		// Not longer than the doubled pause: what was sent lately may be all that there was to send, and the destination be idle long before.
		pause = min(pause, time.Duration(waitingMost)*time.Second/time.Duration(rate))
	}
	return min(max(pause, fullPauseLeast), fullPauseMost)
}

// post holds the lock while it puts, so that a destination cannot retire with a delivery in its mailbox. It gives the destination, nil
// where this process is stopping.
func (r *registry) post(dl *delivery) (to *destination, posted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.supervisor == nil {
		return nil, false
	}
	host := dl.host()
	to = r.byHost[host]
	if to == nil {
		to = newDestination(r.d, host, dl.receiver(), r.work)
		r.byHost[host] = to
		r.d.metrics.known.Inc()
		r.supervisor.Add(to)
	}
	most := waitingMost
	if r.d.held.count() > heldMost || to.paused() {
		most = r.d.c.Connections
	}
	return to, to.mailbox.put(dl, most)
}

// retire forgets a destination, unless something came in meanwhile.
func (r *registry) retire(to *destination) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !to.mailbox.empty() {
		return false
	}
	delete(r.byHost, to.host)
	to.breaker.forget(r.d.metrics)
	r.d.metrics.known.Dec()
	return true
}

// done ends this process's hold on a delivery.
func (r *registry) done(dl *delivery) {
	r.d.held.drop(dl.ID)
	r.d.metrics.held.Dec()
}

// destination is the actor of one receiver host. It alone owns the connections to it, bounds how many are in use and how many
// deliveries are under way, and stops dialling for a while where nothing can be reached.
type destination struct {
	d        *Dispatcher
	host     string          // its name in the registry
	receiver string          // the host and port that it dials; empty where it dials nobody
	work     context.Context //nolint:containedctx // the context that work under way lives on
	mailbox  *mailbox
	breaker  *breaker
	pace     pace
	born     time.Time
	turned   chan struct{} // holds a token when a pause may have begun or ended
	// sentAway counts what found no room in a pause. Few are to come soon after it; of many, which may wait for hours, each return takes
	// time from other hosts.
	sentAway atomic.Int64
}

func newDestination(d *Dispatcher, host, receiver string, work context.Context) *destination {
	return &destination{
		d: d, host: host, receiver: receiver, work: work, mailbox: newMailbox(), breaker: newBreaker(d), born: time.Now(), turned: make(chan struct{}, 1),
	}
}

// String names the actor in the supervisor's log.
func (t *destination) String() string { return "destination " + t.host }

// Serve delivers what comes into the mailbox until ctx ends or nothing comes for a while.
func (t *destination) Serve(ctx context.Context) error {
	s := newShift(t)
	defer s.end()
	wake := time.NewTimer(t.d.c.Idle)
	defer wake.Stop()
	for {
		some := t.mailbox.some
		if !s.room() {
			some = nil // what waits stays in the mailbox
		}
		select {
		case <-some:
			if dl := t.mailbox.take(); dl != nil {
				s.begin(dl)
			}
		case p := <-s.want:
			s.queue(p)
		case p := <-s.withdraw:
			s.unqueue(p)
		case well := <-s.dialled:
			s.connected(well)
		case r := <-s.gave:
			s.takeBack(r)
			wake.Reset(connIdle) // the connection may have to be closed then
		case <-s.ended:
			s.finish()
		case <-t.turned:
			wake.Reset(s.restFor()) // a pause that has begun may end before the timer was to tell
		case <-wake.C:
			s.closeIdle(connIdle)
			if s.active == 0 && time.Since(s.last) >= t.d.c.Idle && !t.breaker.open() && t.d.destinations.retire(t) {
				return suture.ErrDoNotRestart
			}
			wake.Reset(s.restFor())
		case <-ctx.Done():
			t.handBack()
			return ctx.Err()
		}
	}
}

// handBack gives what has not begun to another dispatcher, or to this one's next start.
func (t *destination) handBack() {
	for dl := t.mailbox.take(); dl != nil; dl = t.mailbox.take() {
		t.d.destinations.done(dl)
		_ = dl.msg.Nak()
	}
}

// pace is how many deliveries a destination has sent in a second lately. The actor counts; the registry reads as well.
type pace struct {
	sent  int
	since time.Time

	rate  atomic.Int64
	until atomic.Int64 // Unix nanoseconds; past it the rate says nothing any more
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

// perSecond gives the rate, 0 where the destination has sent too little lately to have one.
func (p *pace) perSecond() int64 {
	if time.Now().UnixNano() > p.until.Load() {
		return 0
	}
	return p.rate.Load()
}
