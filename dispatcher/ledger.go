package dispatcher

import (
	"context"
	"sync"
	"time"

	"verifyd/natsconf"
	"verifyd/sessions"
)

// progressEvery keeps held completions from being given to another dispatcher: three words in each AckWait.
const progressEvery = natsconf.AckWait / 3

// ledger is what this process knows of its own doing: the deliveries that it holds, so that they stay its own and none is worked on
// twice, and the claims that it made in vain.
type ledger struct {
	mu   sync.Mutex
	held map[sessions.ID]*delivery
	vain map[attemptKey]time.Time // until when others leave the claim alone
}

// attemptKey names an attempt.
type attemptKey struct {
	id     sessions.ID
	number int
}

func newLedger() *ledger {
	return &ledger{held: map[sessions.ID]*delivery{}, vain: map[attemptKey]time.Time{}}
}

// take enters a delivery. It refuses one that is held already: a redelivery that crossed with our own work.
func (l *ledger) take(dl *delivery) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.held[dl.ID]; ok {
		return false
	}
	l.held[dl.ID] = dl
	return true
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.held)
}

func (l *ledger) drop(id sessions.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, id)
}

// inVain remembers a claim of ours whose fate was not learnt, so that nothing was sent under it, and forgets those that others may
// have settled by now.
func (l *ledger) inVain(c sessions.Claim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, until := range l.vain {
		if c.At.After(until) {
			delete(l.vain, key)
		}
	}
	l.vain[attemptKey{c.Session, c.Number}] = c.SettleAfter
}

// wasVain says whether this process claimed the attempt and sent nothing under it.
func (l *ledger) wasVain(id sessions.ID, number int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.vain[attemptKey{id, number}]
	return ok
}

// forgetVain is called with a claim in hand, before the first byte: from here on something may be sent.
func (l *ledger) forgetVain(c sessions.Claim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.vain, attemptKey{c.Session, c.Number})
}

// Serve says "still at it" for all that is held, until ctx ends.
func (l *ledger) Serve(ctx context.Context) error {
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
func (l *ledger) String() string { return "dispatcher ledger" }

// progressOnce holds the lock: a word that came after the message was handed back would turn its delay into a whole AckWait.
func (l *ledger) progressOnce() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, dl := range l.held {
		_ = dl.msg.InProgress()
	}
}
