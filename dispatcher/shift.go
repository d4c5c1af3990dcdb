package dispatcher

import (
	"context"
	"slices"
	"time"

	"verifyd/dispatcher/callback"
	"verifyd/natsconf/crashpoint"
)

const (
	// aheadFor is how far ahead deliveries are claimed at a destination that is sending: what it will send within that time, at most
	// aheadMost. Then the claims and results of many share a batch, while its connections are kept busy by those that have one.
	aheadFor  = 20 * time.Millisecond
	aheadMost = 448
	// aheadWait is how long a delivery that is claimed waits for a connection. Then its claim is released: nothing was sent.
	aheadWait = time.Second
	// dialsLeast is how many connections are dialled at once to begin with. Each dial that succeeds allows one more, so that they
	// double with each round trip, and one that fails begins anew: a burst to a receiver that answers soon is carried by few
	// connections, and a slow one has all of its own within a few round trips.
	dialsLeast = 2
	// paceEvery is over which time a destination's rate is counted, and paceFor how long it holds when nothing more is sent.
	paceEvery = 50 * time.Millisecond
	paceFor   = 250 * time.Millisecond
)

// idleConn is a connection kept for the next delivery of a burst.
type idleConn struct {
	conn  *callback.Conn
	since time.Time
}

// shift is the state of a destination while it is served: only its own goroutine touches it. Deliveries talk to it by its channels.
type shift struct {
	t *destination

	want, withdraw chan *place
	dialled        chan bool // a dial has ended, well or not
	gave           chan returned
	ended          chan struct{}

	idle    []idleConn // newest last
	places  int        // connections in use or being dialled
	dialing int        // of these, being dialled
	dials   int        // how many may be dialled at once
	kept    bool       // the last connection that came back after a POST may be used again
	waiting []*place   // claimed and without a connection, oldest first
	active  int        // deliveries under way
	last    time.Time  // when a delivery last ended
	taking  *delivery  // out of the mailbox and not begun: lost, were the actor to fail just there
}

func newShift(t *destination) *shift {
	return &shift{
		t: t, last: time.Now(), dials: dialsLeast,
		want: make(chan *place), withdraw: make(chan *place),
		dialled: make(chan bool), gave: make(chan returned), ended: make(chan struct{}),
	}
}

// returned is a place that comes back.
type returned struct {
	conn *callback.Conn // nil where nothing can be used again
	sent bool           // somebody was reached with it
}

// place is a delivery's right to one connection. A delivery has it from the beginning or, where it is claimed ahead, asks for it.
type place struct {
	shift  *shift
	passed func(contact)       // tells the breaker; nil once it is told, or where none is asked
	conn   chan *callback.Conn // the answer to want; nil in it: dial
	held   bool
	dials  bool // no connection came with it: the delivery dials
}

// take waits for a connection, or the right to dial one.
func (p *place) take(ctx context.Context) (conn *callback.Conn, ok bool) {
	p.conn = make(chan *callback.Conn, 1)
	p.shift.want <- p
	late := time.NewTimer(aheadWait)
	defer late.Stop()
	select {
	case conn = <-p.conn:
		p.held, p.dials = true, conn == nil
		return conn, true
	case <-late.C:
	case <-ctx.Done():
	}
	p.shift.withdraw <- p
	conn, p.held = <-p.conn // it may have been given just then
	p.dials = p.held && conn == nil
	return conn, p.held
}

// dialled says that a dial has ended, well or not. A repeat, and a dial that nobody counted, are harmless.
func (p *place) dialled(well bool) {
	if p.dials {
		p.dials = false
		p.shift.dialled <- well
	}
}

// give returns the place with what the delivery learnt. A repeat is harmless.
func (p *place) give(conn *callback.Conn, learnt contact) {
	if p.passed != nil {
		p.passed(learnt)
		p.passed = nil
	}
	p.dialled(false)
	if p.held {
		p.held = false
		p.shift.gave <- returned{conn: conn, sent: learnt == reached}
	}
}

// room says whether one more delivery may begin.
func (s *shift) room() bool {
	if s.t.paused() {
		return false
	}
	most := s.t.d.c.Connections
	if len(s.waiting) == 0 && s.connectable() {
		return s.active < most+aheadMost
	}
	return s.places == most && s.active < most+s.ahead()
}

// connectable says whether a place can be given: an unused connection, or a dial.
func (s *shift) connectable() bool {
	if s.places >= s.t.d.c.Connections {
		return false
	}
	// While the breaker is not closed only a probe, and those whose time is over, are dialled at all.
	return len(s.idle) > 0 || s.dialing < s.dials || !s.t.breaker.closed()
}

// seat gives a place: a connection, or nil where one is to be dialled.
func (s *shift) seat() *callback.Conn {
	conn := s.takeIdle()
	s.places++
	if conn == nil {
		s.dialing++
	}
	return conn
}

// ahead gives how many deliveries may be claimed before they have a connection. A receiver that closes each gets none: dials would
// come after the claim.
func (s *shift) ahead() int {
	if !s.kept {
		return 0
	}
	return int(min(aheadMost, s.t.pace.perSecond()*int64(aheadFor)/int64(time.Second)))
}

// begin starts one delivery: on a connection of the burst, where there is one, or with the right to dial; or, where all are in use,
// ahead of them. While the breaker is open it goes back to JetStream instead, unless it is time to give it up.
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
	p := &place{shift: s, passed: passed}
	var conn *callback.Conn
	if len(s.waiting) == 0 && s.connectable() {
		conn = s.seat()
		p.held, p.dials = true, conn == nil
	}
	go func() {
		d.deliver(s.t.work, dl, p, conn)
		s.ended <- struct{}{}
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

// queue gives a claimed delivery its connection, now or when one comes back.
func (s *shift) queue(p *place) {
	s.waiting = append(s.waiting, p)
	s.serveWaiting()
}

// unqueue ends a wait, unless it was answered meanwhile.
func (s *shift) unqueue(p *place) {
	if i := slices.Index(s.waiting, p); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
		close(p.conn)
	}
}

func (s *shift) serveWaiting() {
	for len(s.waiting) > 0 && s.connectable() {
		p := s.waiting[0]
		s.waiting[0] = nil
		s.waiting = s.waiting[1:]
		p.conn <- s.seat()
	}
}

// connected takes note of the end of a dial.
func (s *shift) connected(well bool) {
	s.dialing--
	s.dials = min(s.dials+1, s.t.d.c.Connections)
	if !well {
		s.dials = dialsLeast
	}
	s.serveWaiting()
}

// takeBack takes a place back.
func (s *shift) takeBack(r returned) {
	s.places--
	if r.sent {
		s.t.pace.count()
		s.kept = r.conn != nil
	}
	if r.conn != nil {
		s.idle = append(s.idle, idleConn{conn: r.conn, since: time.Now()})
	}
	s.serveWaiting()
}

// finish takes note of a delivery's end.
func (s *shift) finish() {
	s.active--
	s.last = time.Now()
	s.t.d.metrics.inFlight.Dec()
}

// restFor gives after which time there may be something to do that nobody tells: a connection to close, or to retire.
func (s *shift) restFor() time.Duration {
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
		select {
		case p := <-s.want:
			s.queue(p)
		case p := <-s.withdraw:
			s.unqueue(p)
		case well := <-s.dialled:
			s.connected(well)
		case r := <-s.gave:
			s.takeBack(r)
		case <-s.ended:
			s.finish()
		}
	}
	s.closeIdle(0)
}
