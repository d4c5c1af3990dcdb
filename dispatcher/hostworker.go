package dispatcher

import (
	"context"
	"slices"
	"time"

	"verifyd/dispatcher/callback"
	"verifyd/natsconf/crashpoint"
)

const (
	// aheadFor is how far ahead deliveries are claimed at a destination that is sending: what it will send
	// within that time, at most maxAhead. Then the claims and results of many share a batch, while its
	// connections are kept busy by those that have one.
	aheadFor = 20 * time.Millisecond
	maxAhead = 448
	// aheadWait is how long a delivery that is claimed waits for a connection. Then its claim is released:
	// nothing was sent.
	aheadWait = time.Second
	// minDials is how many connections are dialled at once to begin with. Each dial that succeeds allows
	// one more, so that they double with each round trip, and one that fails begins anew: a burst to a
	// receiver that answers soon is carried by few connections, and a slow one has all of its own within a
	// few round trips.
	minDials = 2
	// paceEvery is over which time a destination's rate is counted, and paceFor how long it holds when
	// nothing more is sent.
	paceEvery = 50 * time.Millisecond
	paceFor   = 250 * time.Millisecond
)

// idleConn is a connection kept for the next delivery of a burst, of the same account: what comes late over
// it, and cannot be distinguished from the answer to the next request, stays in the account.
type idleConn struct {
	conn    *callback.Conn
	account string
	since   time.Time
}

// hostWorker is the state of a destination while it is served. Only its own goroutine accesses it;
// deliveries use its channels.
type hostWorker struct {
	t *destination

	requests, cancellations chan *connSlot
	dialEnds                chan bool // a dial has ended, well or not
	releases                chan releasedSlot
	done                    chan struct{}

	idle     []idleConn  // newest last
	slots    int         // connections in use or being dialled
	dialing  int         // of these, being dialled
	dials    int         // how many may be dialled at once
	reusable bool        // the last connection that came back after a POST may be used again
	waiting  []*connSlot // claimed and without a connection, oldest first
	active   int         // deliveries under way
	last     time.Time   // when a delivery last ended
	starting *delivery   // out of the mailbox and not begun: lost, were the actor to fail just there
}

func newHostWorker(t *destination) *hostWorker {
	return &hostWorker{
		t: t, last: time.Now(), dials: minDials,
		requests: make(chan *connSlot), cancellations: make(chan *connSlot),
		dialEnds: make(chan bool), releases: make(chan releasedSlot), done: make(chan struct{}),
	}
}

// releasedSlot is a connection slot that comes back.
type releasedSlot struct {
	conn    *callback.Conn // nil where nothing can be used again
	account string
	sent    bool // somebody was reached with it
}

// connSlot is a delivery's right to one connection. A delivery has it from the beginning or, where it is
// claimed ahead, asks for it.
type connSlot struct {
	worker        *hostWorker
	account       string
	reportContact func(contact)       // reports to the breaker; nil once that is done, or where there is none
	conn          chan *callback.Conn // the answer to a request; nil in it: dial
	held          bool
	mustDial      bool // no connection came with it: the delivery dials
}

// acquire waits for a connection, or the right to dial one.
func (p *connSlot) acquire(ctx context.Context) (conn *callback.Conn, ok bool) {
	p.conn = make(chan *callback.Conn, 1)
	p.worker.requests <- p
	timeout := time.NewTimer(aheadWait)
	defer timeout.Stop()
	select {
	case conn = <-p.conn:
		p.held, p.mustDial = true, conn == nil
		return conn, true
	case <-timeout.C:
	case <-ctx.Done():
	}
	p.worker.cancellations <- p
	conn, p.held = <-p.conn // it may have been assigned just then
	p.mustDial = p.held && conn == nil
	return conn, p.held
}

// dialEnded reports that a dial has ended, well or not. A repeat, and a dial that nobody counted, are
// harmless.
func (p *connSlot) dialEnded(well bool) {
	if p.mustDial {
		p.mustDial = false
		p.worker.dialEnds <- well
	}
}

// release returns the place with what the delivery learnt. A repeat is harmless.
func (p *connSlot) release(conn *callback.Conn, learnt contact) {
	if p.reportContact != nil {
		p.reportContact(learnt)
		p.reportContact = nil
	}
	p.dialEnded(false)
	if p.held {
		p.held = false
		p.worker.releases <- releasedSlot{conn: conn, account: p.account, sent: learnt == reached}
	}
}

// canStart reports whether one more delivery of the account may begin.
func (s *hostWorker) canStart(account string) bool {
	if s.t.paused() {
		return false
	}
	limit := s.t.d.c.Connections
	if len(s.waiting) == 0 && s.canConnect(account) {
		return s.active < limit+maxAhead
	}
	return s.slots == limit && s.active < limit+s.ahead()
}

// canConnect reports whether a slot can be assigned: an unused connection of the account, or a dial.
func (s *hostWorker) canConnect(account string) bool {
	if s.slots >= s.t.d.c.Connections {
		return false
	}
	// While the breaker is not closed only a probe, and those whose time is over, are dialled at all.
	return s.dialing < s.dials || !s.t.breaker.closed() || s.newestIdle(account) >= 0
}

// openSlot takes a slot and returns its connection, nil where one is to be dialled.
func (s *hostWorker) openSlot(account string) *callback.Conn {
	s.closeIdle(connIdle)
	if s.t.distrusted.Load() {
		s.closeIdle(0)
	}
	s.slots++
	if i := s.newestIdle(account); i >= 0 {
		conn := s.idle[i].conn
		s.idle = slices.Delete(s.idle, i, i+1)
		return conn
	}
	s.dialing++
	// unused ones, of other accounts, count too
	if len(s.idle) > 0 && s.slots+len(s.idle) > s.t.d.c.Connections {
		_ = s.idle[0].conn.Close()
		s.idle = slices.Delete(s.idle, 0, 1)
	}
	return nil
}

// newestIdle returns where the account's connection is that was used last; -1 where it has none.
func (s *hostWorker) newestIdle(account string) int {
	for i, c := range slices.Backward(s.idle) {
		if c.account == account {
			return i
		}
	}
	return -1
}

// ahead returns how many deliveries may be claimed before they have a connection. A receiver that closes
// each gets none: dials would come after the claim.
func (s *hostWorker) ahead() int {
	if !s.reusable {
		return 0
	}
	return int(min(maxAhead, s.t.pace.perSecond()*int64(aheadFor)/int64(time.Second)))
}

// startReady starts what waits, as far as it may.
func (s *hostWorker) startReady(ctx context.Context) {
	allowed := func(account string) bool { return s.canStart(account) && s.t.d.budget.acquire(account, s.t) }
	for ctx.Err() == nil {
		dl := s.t.mailbox.take(allowed)
		if dl == nil {
			break
		}
		s.start(dl)
	}
	s.t.d.budget.releaseUnused(s.t)
}

// start starts one delivery: on a connection of the burst, where there is one, or with the right to dial;
// or, where all are in use, ahead of them. While the breaker is open it goes back to JetStream instead,
// unless it is time to give it up.
func (s *hostWorker) start(dl *delivery) {
	s.starting = dl
	crashpoint.Reach(crashpoint.Taken)
	d := s.t.d
	reportContact, wait := s.t.breaker.allow()
	if reportContact == nil && d.now().Before(d.giveUpAt(dl)) {
		s.handBack(wait)
		return
	}
	s.starting = nil // from here on it is deliver's
	s.active++
	d.metrics.inFlight.Inc()
	p := &connSlot{worker: s, account: dl.Account, reportContact: reportContact}
	var conn *callback.Conn
	if len(s.waiting) == 0 && s.canConnect(p.account) {
		conn = s.openSlot(p.account)
		p.held, p.mustDial = true, conn == nil
	}
	go func() {
		d.deliver(s.t.work, dl, p, conn)
		d.budget.release(dl.Account)
		s.done <- struct{}{}
	}()
}

// handBack returns what was taken and not started to JetStream.
func (s *hostWorker) handBack(wait time.Duration) {
	dl, d := s.starting, s.t.d
	s.starting = nil
	d.budget.release(dl.Account)
	d.destinations.done(dl)
	d.dispose(dl, retryIn(wait))
}

// enqueue assigns a claimed delivery its connection, now or when one comes back.
func (s *hostWorker) enqueue(p *connSlot) {
	s.waiting = append(s.waiting, p)
	s.serveWaiting()
}

// dequeue ends a wait, unless it was answered meanwhile.
func (s *hostWorker) dequeue(p *connSlot) {
	if i := slices.Index(s.waiting, p); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
		close(p.conn)
	}
}

func (s *hostWorker) serveWaiting() {
	for {
		i := slices.IndexFunc(s.waiting, func(p *connSlot) bool { return s.canConnect(p.account) })
		if i < 0 {
			return
		}
		p := s.waiting[i]
		s.waiting = slices.Delete(s.waiting, i, i+1)
		p.conn <- s.openSlot(p.account)
	}
}

// dialEnded records the end of a dial.
func (s *hostWorker) dialEnded(well bool) {
	s.dialing--
	s.dials = min(s.dials+1, s.t.d.c.Connections)
	if !well {
		s.dials = minDials
	}
	s.serveWaiting()
}

// released takes a slot back.
func (s *hostWorker) released(r releasedSlot) {
	s.slots--
	if r.conn != nil && s.t.distrusted.Load() {
		_ = r.conn.Close()
		r.conn = nil
	}
	if r.sent {
		s.t.pace.count()
		s.reusable = r.conn != nil
	}
	if r.conn != nil {
		s.idle = append(s.idle, idleConn{conn: r.conn, account: r.account, since: time.Now()})
	}
	s.serveWaiting()
}

// deliveryEnded records a delivery's end.
func (s *hostWorker) deliveryEnded() {
	s.active--
	s.last = time.Now()
	s.t.d.metrics.inFlight.Dec()
}

// nextWake returns when there may be work that nothing signals: a connection to close, or retiring.
func (s *hostWorker) nextWake() time.Duration {
	rest := s.t.d.c.Idle
	if len(s.idle) > 0 {
		rest = connIdle
	}
	if p, ok := s.t.d.pauseOf(s.t.receiver); ok {
		if left := p.End().Sub(s.t.d.c.Now()); left > 0 {
			rest = min(rest, left)
		}
	}
	return rest
}

func (s *hostWorker) closeIdle(olderThan time.Duration) {
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

// drain waits for the deliveries under way, which end by themselves or by the abort. It also runs when the
// actor panics.
func (s *hostWorker) drain() {
	if s.starting != nil {
		s.handBack(0)
	}
	s.t.d.budget.remove(s.t)
	for s.active > 0 {
		select {
		case p := <-s.requests:
			s.enqueue(p)
		case p := <-s.cancellations:
			s.dequeue(p)
		case well := <-s.dialEnds:
			s.dialEnded(well)
		case r := <-s.releases:
			s.released(r)
		case <-s.done:
			s.deliveryEnded()
		}
	}
	s.closeIdle(0)
}
