package dispatcher

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"verifyd/dispatcher/bounds"
	"verifyd/dispatcher/callback"
)

const (
	// maxStoring bounds the deliveries of a destination that have returned their connection and still store
	// their result. Their results share a batch; a store that falls behind must not gather more of them.
	maxStoring = 448
	// minDials is how many connections are dialled at once to begin with. Each dial that succeeds allows one
	// more, so that they double with each round trip; one that fails begins again. So few connections carry a
	// burst to a fast receiver, and a slow receiver has all of its own within a few round trips.
	minDials = 2
	// connIdle is how long an unused connection is kept. Receivers close idle ones after a few seconds, and
	// a request written to a connection that is being closed ends as unknown.
	connIdle = time.Second
	// paceEvery is over which time a destination's rate is counted, and paceFor how long it holds when
	// nothing more is sent.
	paceEvery = 50 * time.Millisecond
	paceFor   = 250 * time.Millisecond
)

// connections are those to one receiver host: which are in use, and which are kept for the next delivery. Its
// methods lock, except those that are documented as called under the lock.
type connections struct {
	limit   int // of those in use
	breaker *breaker
	changed chan<- struct{} // gets a token when more may begin, or something has ended
	// distrusted: the receiver has sent unsolicited bytes. The next bytes over a connection to it may be a
	// late answer to the request before, so no connection is used twice any more.
	distrusted atomic.Bool

	mu      sync.Mutex
	idle    []idleConn // the last one is the one that was returned last
	slots   int        // connections in use or being dialled
	dialing int        // of these, being dialled
	dials   int        // how many may be dialled at once
	active  int        // deliveries under way: with a connection, or storing their result
	last    time.Time  // when a delivery last ended
	pace    pace
}

// idleConn is a connection kept for the next delivery of a burst, of the same account: bytes that come late
// over it, and cannot be distinguished from the answer to the next request, stay in the account.
type idleConn struct {
	conn    *callback.Conn
	account string
	since   time.Time
}

// connSlot is a delivery's right to one connection.
type connSlot struct {
	of      *connections
	account string
	report  func(learnt error) // reports to the breaker; nil once that is done, or if there is none
	held    bool               // not returned yet
	conn    *callback.Conn     // nil: none came with it, or it was closed
	dials   bool               // no connection came with it: a dial is counted until it has ended
}

func newConnections(limit int, b *breaker, changed chan<- struct{}) *connections {
	return &connections{limit: limit, breaker: b, changed: changed, dials: minDials, last: time.Now()}
}

// canStart reports whether one more delivery of the account may begin: there is an unused connection of the
// account, or room for a dial. It is called under the lock.
func (c *connections) canStart(account string) bool {
	if c.slots >= c.limit || c.active >= c.limit+maxStoring {
		return false
	}
	// While the breaker is not closed, only a probe, and deliveries whose time is over, are dialled at all.
	return c.dialing < c.dials || !c.breaker.closed() || c.newestIdle(account) >= 0
}

// start begins a delivery, with a connection or the right to dial one. It is called under the lock.
func (c *connections) start(account string, report func(learnt error)) *connSlot {
	c.closeIdle(connIdle)
	if c.distrusted.Load() {
		c.closeIdle(0)
	}
	s := &connSlot{of: c, account: account, report: report, held: true}
	c.active++
	c.slots++
	if i := c.newestIdle(account); i >= 0 {
		s.conn = c.idle[i].conn
		c.idle = slices.Delete(c.idle, i, i+1)
		return s
	}
	s.dials = true
	c.dialing++
	// unused ones, of other accounts, count too
	if len(c.idle) > 0 && c.slots+len(c.idle) > c.limit {
		_ = c.idle[0].conn.Close()
		c.idle = slices.Delete(c.idle, 0, 1)
	}
	return s
}

// newestIdle returns the index of the account's connection that was used last; -1 if it has none.
func (c *connections) newestIdle(account string) int {
	for i, kept := range slices.Backward(c.idle) {
		if kept.account == account {
			return i
		}
	}
	return -1
}

// dialEnded reports that a dial has ended, successfully or not. A repeat, and a dial that was not counted,
// are harmless.
func (s *connSlot) dialEnded(well bool) {
	c := s.of
	c.mu.Lock()
	defer c.mu.Unlock()
	if !s.dials {
		return
	}
	s.dials = false
	c.dialing--
	c.dials = min(c.dials+1, c.limit)
	if !well {
		c.dials = minDials
	}
	bounds.Signal(c.changed)
}

// closeConn closes the slot's connection, if it has one.
func (s *connSlot) closeConn() {
	if s.conn == nil {
		return
	}
	if s.conn.Unsolicited() {
		s.of.distrusted.Store(true)
	}
	_ = s.conn.Close()
	s.conn = nil
}

// release returns the slot, with its connection and what the delivery learnt about the receiver (allow). A
// repeat is harmless.
func (s *connSlot) release(learnt error) {
	if s.report != nil {
		s.report(learnt)
		s.report = nil
	}
	if !s.held {
		return
	}
	s.dialEnded(false)
	c := s.of
	if c.distrusted.Load() {
		s.closeConn()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.held = false
	c.slots--
	if learnt == nil {
		c.pace.count()
	}
	if s.conn != nil {
		c.idle = append(c.idle, idleConn{conn: s.conn, account: s.account, since: time.Now()})
		s.conn = nil // it is no longer this delivery's to close
	}
	bounds.Signal(c.changed)
}

// ended records that a delivery has ended.
func (c *connections) ended() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active--
	c.last = time.Now()
	bounds.Signal(c.changed)
}

// closeIdle closes connections that have not been used for the given time. It is called under the lock.
func (c *connections) closeIdle(since time.Duration) {
	c.idle = slices.DeleteFunc(c.idle, func(kept idleConn) bool {
		if time.Since(kept.since) < since {
			return false
		}
		_ = kept.conn.Close()
		return true
	})
}

// closeUnused closes connections that were kept for long enough, and returns how long until the next one will
// have been; not ok: none is left.
func (c *connections) closeUnused() (left time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closeIdle(connIdle)
	if len(c.idle) == 0 {
		return 0, false
	}
	return connIdle - time.Since(c.idle[0].since), true
}

// closeAll closes the kept connections, and reports whether it did: not while a delivery is under way.
func (c *connections) closeAll() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.active > 0 {
		return false
	}
	c.closeIdle(0)
	return true
}

// quiet reports whether no delivery has been under way for the given time.
func (c *connections) quiet(since time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.active == 0 && time.Since(c.last) >= since
}

// rate returns how many deliveries were sent per second lately.
func (c *connections) rate() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pace.perSecond()
}

// pace is how many deliveries per second a destination has sent lately.
type pace struct {
	sent  int
	since time.Time
	rate  int64
	until time.Time // after which the rate does not count
}

func (p *pace) count() {
	now := time.Now()
	p.sent++
	if p.since.IsZero() || now.Sub(p.since) > paceFor {
		p.sent, p.since = 0, now
		return
	}
	if took := now.Sub(p.since); took >= paceEvery {
		p.rate, p.until = int64(float64(p.sent)/took.Seconds()), now.Add(paceFor)
		p.sent, p.since = 0, now
	}
}

// perSecond returns the rate, 0 if the destination has sent too little lately to have one.
func (p *pace) perSecond() int64 {
	if time.Now().After(p.until) {
		return 0
	}
	return p.rate
}
