package dispatcher

import (
	"context"
	"hash/maphash"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"verifyd/dispatcher/bounds"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
)

// progressEvery keeps held completions from being delivered to another dispatcher: three progress messages
// in each AckWait. They are spread over that time, in progressTurns turns, each for the deliveries of one
// slot: progress messages for all held deliveries at once would keep the connection from those that are under
// way.
const (
	progressEvery = topology.AckWait / 3
	progressTurns = 100
)

// maxHeld is how many deliveries this process may hold, about 2 KiB each; accounts share it. Deliveries that
// do not fit go back to JetStream.
const maxHeld = 32 << 10

// heldSet is the set of deliveries that this process holds. It keeps them this process's own, and none is
// worked on twice.
type heldSet struct {
	gauge prometheus.Gauge // of how many are held
	seed  maphash.Seed
	slots [progressTurns]heldSlot

	mu    sync.Mutex
	share bounds.Share // of the deliveries that may be held
}

// heldSlot is the part of the set that gets its progress messages in one turn. Each has a lock: if the
// connection accepts no more for a while, the lock's holder waits, and the deliveries of the other slots do
// not.
type heldSlot struct {
	mu   sync.Mutex
	held map[sessions.ID]jetstream.Msg
}

func newHeldSet(gauge prometheus.Gauge) *heldSet {
	return &heldSet{gauge: gauge, seed: maphash.MakeSeed(), share: bounds.NewShare(maxHeld, maxHeld)}
}

func (h *heldSet) slot(id sessions.ID) *heldSlot {
	return &h.slots[maphash.String(h.seed, string(id))%progressTurns]
}

// add adds a delivery. It refuses one that is held already (a redelivery that crossed with our own work), and
// one for which the account has no room.
func (h *heldSet) add(id sessions.ID, account string, m jetstream.Msg) (held, room bool) {
	s := h.slot(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.held[id]; ok {
		return true, false
	}
	if !h.reserve(account) {
		return false, false
	}
	if s.held == nil {
		s.held = map[sessions.ID]jetstream.Msg{}
	}
	s.held[id] = m
	return false, true
}

// reserve takes one more of the account's share, if there is one.
func (h *heldSet) reserve(account string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	ok := h.share.Allows(account)
	if ok {
		h.share.Add(account)
		h.gauge.Inc()
	}
	return ok
}

func (h *heldSet) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.share.Used()
}

// remove ends this process's hold on a delivery. A repeat is harmless.
func (h *heldSet) remove(id sessions.ID, account string) {
	s := h.slot(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.held[id]; ok {
		delete(s.held, id)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.share.Drop(account)
		h.gauge.Dec()
	}
}

// Serve reports progress for all held deliveries, one slot after another, until ctx ends. A late turn is made
// up for at once.
func (h *heldSet) Serve(ctx context.Context) error {
	due := time.Now()
	for turn := 0; ; turn = (turn + 1) % progressTurns {
		if due = due.Add(progressEvery / progressTurns); time.Since(due) > progressEvery {
			due = time.Now() // this process was stopped for a while
		}
		select {
		case <-time.After(time.Until(due)):
			h.slots[turn].progressOnce()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// String names the actor in the supervisor's log.
func (h *heldSet) String() string { return "dispatcher held deliveries" }

// progressOnce holds the lock: a progress message after the message was handed back would extend its delay
// to a whole AckWait.
func (s *heldSlot) progressOnce() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.held {
		_ = m.InProgress()
	}
}

// unconfirmedClaims are this process's claims that may or may not be stored, and under which nothing was
// sent. Their lock is not held while anything waits: each delivery needs it between its claim and its first
// byte.
type unconfirmedClaims struct {
	mu     sync.Mutex
	claims [2]map[attemptKey]bool // of the current unconfirmedFor, and of the one before
	since  time.Time              // when the current one began, by a claim's time
}

// unconfirmedFor is the least time for which an unconfirmed claim is remembered: longer than an overloaded
// or unavailable store keeps the session from being processed again.
const unconfirmedFor = time.Hour

// attemptKey names an attempt.
type attemptKey struct {
	id     sessions.ID
	number int
}

// add remembers a claim that may or may not be stored.
func (u *unconfirmedClaims) add(c facts.Claim) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.claims[0] == nil || c.At.Sub(u.since) > unconfirmedFor {
		u.claims, u.since = [2]map[attemptKey]bool{{}, u.claims[0]}, c.At
	}
	u.claims[0][attemptKey{c.Session, c.Number}] = true
}

// has reports whether this process claimed the attempt and sent nothing under it.
func (u *unconfirmedClaims) has(id sessions.ID, number int) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	key := attemptKey{id, number}
	return u.claims[0][key] || u.claims[1][key]
}

// drop is called once the claim is confirmed, before the first byte: from here on something may be sent.
func (u *unconfirmedClaims) drop(c facts.Claim) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, claims := range u.claims {
		delete(claims, attemptKey{c.Session, c.Number})
	}
}
