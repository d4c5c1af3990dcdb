package dispatcher

import (
	"context"
	"sync"
	"time"

	"verifyd/natsconf"
	"verifyd/sessions"
)

// progressEvery keeps held completions from being delivered to another dispatcher: three progress messages
// in each AckWait.
const progressEvery = natsconf.AckWait / 3

// inFlightSet is the set of deliveries that this process holds, so that they stay its own and none is worked
// on twice, and its unconfirmed claims.
type inFlightSet struct {
	mu          sync.Mutex
	held        map[sessions.ID]*delivery
	share       share                  // of what may be held
	unconfirmed [2]map[attemptKey]bool // of the unconfirmedFor that is under way, and of the one before
	since       time.Time              // when the one that is under way began, by a claim's time
}

// unconfirmedFor is the least time for which an unconfirmed claim is remembered: longer than an overloaded
// or unavailable store keeps the session from being processed again.
const unconfirmedFor = time.Hour

// attemptKey names an attempt.
type attemptKey struct {
	id     sessions.ID
	number int
}

func newInFlightSet() *inFlightSet {
	return &inFlightSet{held: map[sessions.ID]*delivery{}, share: newShare(maxHeld, maxHeld)}
}

// add adds a delivery. It refuses one that is held already, a redelivery that crossed with our own work, and
// one for which the account has no room.
func (l *inFlightSet) add(dl *delivery) (held, room bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.held[dl.ID]; ok {
		return true, false
	}
	if !l.share.allows(dl.Account) {
		return false, false
	}
	l.held[dl.ID] = dl
	l.share.add(dl.Account)
	return false, true
}

func (l *inFlightSet) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.held)
}

func (l *inFlightSet) remove(dl *delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.held[dl.ID]; ok {
		delete(l.held, dl.ID)
		l.share.drop(dl.Account)
	}
}

// addUnconfirmed remembers a claim of ours that may or may not be stored, and under which nothing was sent.
func (l *inFlightSet) addUnconfirmed(c sessions.Claim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unconfirmed[0] == nil || c.At.Sub(l.since) > unconfirmedFor {
		l.unconfirmed, l.since = [2]map[attemptKey]bool{{}, l.unconfirmed[0]}, c.At
	}
	l.unconfirmed[0][attemptKey{c.Session, c.Number}] = true
}

// isUnconfirmed reports whether this process claimed the attempt and sent nothing under it.
func (l *inFlightSet) isUnconfirmed(id sessions.ID, number int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := attemptKey{id, number}
	return l.unconfirmed[0][key] || l.unconfirmed[1][key]
}

// dropUnconfirmed is called once the claim is confirmed, before the first byte: from here on something may
// be sent.
func (l *inFlightSet) dropUnconfirmed(c sessions.Claim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, claims := range l.unconfirmed {
		delete(claims, attemptKey{c.Session, c.Number})
	}
}

// Serve reports progress for all that is held, until ctx ends.
func (l *inFlightSet) Serve(ctx context.Context) error {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.progressOnce()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// String names the actor in the supervisor's log.
func (l *inFlightSet) String() string { return "dispatcher ledger" }

// progressOnce holds the lock: a progress message after the message was handed back would extend its delay
// to a whole AckWait.
func (l *inFlightSet) progressOnce() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, dl := range l.held {
		_ = dl.msg.InProgress()
	}
}
