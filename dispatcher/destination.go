package dispatcher

import (
	"context"
	"sync"
	"time"

	"github.com/thejerf/suture/v4"

	"verifyd/dispatcher/callback"
	"verifyd/natsconf/crashpoint"
)

const (
	// waitingMost bounds what waits at one destination, and heldMost what this process holds at all, about 2 KiB each. What does
	// not fit goes back to JetStream. Up to its own concurrency a destination always has room: those who hang cannot take it.
	waitingMost = 1024
	heldMost    = 8192
	// connIdle is how long an unused connection is kept. Receivers close idle ones after a few seconds, and a request written
	// to a connection that is being closed ends as unknown.
	connIdle = time.Second
)

// registry makes destinations on first use and forgets them when they retire.
type registry struct {
	d *Dispatcher

	mu         sync.Mutex
	held       int                // deliveries taken and not done
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
func (r *registry) hand(dl *delivery) {
	if !r.d.held.take(dl) {
		return // another copy is still being worked on; this one comes again after AckWait, and meets the facts
	}
	r.d.metrics.held.Inc()
	if !r.post(dl) {
		r.done(dl)
		_ = dl.msg.NakWithDelay(fullPause)
	}
}

// post holds the lock while it puts, so that a destination cannot retire with a delivery in its mailbox.
func (r *registry) post(dl *delivery) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held++ // done takes it back
	if r.supervisor == nil {
		return false
	}
	host := r.hostOf(dl)
	to := r.byHost[host]
	if to == nil {
		to = newDestination(r.d, host, r.work)
		r.byHost[host] = to
		r.d.metrics.known.Inc()
		r.supervisor.Add(to)
	}
	most := waitingMost
	if r.held > heldMost {
		most = r.d.c.Concurrency
	}
	return to.mailbox.put(dl, most)
}

// hostOf gives the host and port of the callback. A URL that today's policy refuses has none: such deliveries share one actor.
func (r *registry) hostOf(dl *delivery) string {
	u, err := r.d.c.Policy.Parse(dl.CallbackURL)
	if err != nil {
		return "refused"
	}
	return u.HostPort()
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
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held--
}

// destination is the actor of one receiver host. It alone owns the connections to it, bounds the deliveries under way, and stops
// dialling for a while where nothing can be reached.
type destination struct {
	d       *Dispatcher
	host    string
	work    context.Context //nolint:containedctx // the context that work under way lives on
	mailbox *mailbox
	breaker *breaker
}

func newDestination(d *Dispatcher, host string, work context.Context) *destination {
	return &destination{d: d, host: host, work: work, mailbox: newMailbox(), breaker: newBreaker(d)}
}

// String names the actor in the supervisor's log.
func (t *destination) String() string { return "destination " + t.host }

// idleConn is a connection kept for the next delivery of a burst.
type idleConn struct {
	conn  *callback.Conn
	since time.Time
}

// Serve delivers what comes into the mailbox until ctx ends or nothing comes for a while.
func (t *destination) Serve(ctx context.Context) error {
	s := &shift{t: t, back: make(chan left), last: time.Now()}
	defer s.end()
	wake := time.NewTimer(t.d.c.Idle)
	defer wake.Stop()
	for {
		some := t.mailbox.some
		if s.active >= t.d.c.Concurrency {
			some = nil // what waits stays in the mailbox
		}
		select {
		case <-some:
			if dl := t.mailbox.take(); dl != nil {
				s.begin(dl)
			}
		case l := <-s.back:
			s.finish(l)
			wake.Reset(connIdle) // the connection that it left may have to be closed then
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

// left is what a delivery leaves: a connection that may be used again, or nil, and what it learnt about its receiver.
type left struct {
	conn    *callback.Conn
	contact contact
	passed  func(contact) // tells the breaker
}

// shift is the state of a destination while it is served: only its own goroutine touches it.
type shift struct {
	t      *destination
	back   chan left
	idle   []idleConn // newest last
	active int
	last   time.Time // when a delivery last ended
	taking *delivery // out of the mailbox and not begun: lost, were the actor to fail just there
}

// begin starts one delivery on a connection of the burst, if there is one, which the delivery then owns. While the breaker is open
// it goes back to JetStream instead, unless it is time to give it up.
func (s *shift) begin(dl *delivery) {
	s.taking = dl
	crashpoint.Reach(crashpoint.Taken)
	d := s.t.d
	passed, wait := s.t.breaker.pass()
	if passed == nil && d.now().Before(d.giveUpAt(dl)) {
		s.taking = nil
		d.destinations.done(dl)
		d.answer(dl, again(wait))
		return
	}
	s.taking = nil // from here on it is deliver's
	s.active++
	d.metrics.inFlight.Inc()
	conn := s.takeIdle()
	go func() {
		conn, learnt := d.deliver(s.t.work, dl, conn)
		s.back <- left{conn: conn, contact: learnt, passed: passed}
	}()
}

func (s *shift) takeIdle() *callback.Conn {
	s.closeIdle(connIdle)
	if len(s.idle) == 0 {
		return nil
	}
	last := s.idle[len(s.idle)-1]
	s.idle = s.idle[:len(s.idle)-1]
	return last.conn
}

// finish takes back what a delivery leaves.
func (s *shift) finish(l left) {
	if l.passed != nil {
		l.passed(l.contact)
	}
	s.active--
	s.last = time.Now()
	s.t.d.metrics.inFlight.Dec()
	if l.conn != nil {
		s.idle = append(s.idle, idleConn{conn: l.conn, since: time.Now()})
	}
}

// restFor gives after which time there may be something to do that nobody tells: a connection to close, or to retire.
func (s *shift) restFor() time.Duration {
	if len(s.idle) > 0 {
		return connIdle
	}
	return s.t.d.c.Idle
}

func (s *shift) closeIdle(olderThan time.Duration) {
	keep := s.idle[:0]
	for _, c := range s.idle {
		if time.Since(c.since) >= olderThan {
			_ = c.conn.Close()
			continue
		}
		keep = append(keep, c)
	}
	s.idle = keep
}

// end waits for the deliveries under way, which end by themselves or by the abort. It also runs when the actor panics.
func (s *shift) end() {
	if s.taking != nil {
		s.t.d.destinations.done(s.taking)
		s.t.d.answer(s.taking, again(0))
	}
	for s.active > 0 {
		s.finish(<-s.back)
	}
	s.closeIdle(0)
}
