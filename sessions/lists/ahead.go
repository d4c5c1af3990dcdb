package lists

import (
	"context"
	"time"
)

const (
	// aheadFor bounds how long is read ahead for one account, which is a quarter of a million sessions: a
	// search that comes meanwhile waits for it, and has time of its own left.
	aheadFor = 3 * time.Second
	// maxAhead bounds the accounts whose turn is yet to come.
	maxAhead = 16
	// nobody is what no user, group or key is called: a search for it looks through all sessions.
	nobody = "\x00"
)

// Expect says that somebody may search an account's sessions soon, as who opens a page of its dashboard. What
// the first search looks through is read ahead then, where an Ahead serves. It returns at once.
func (st *Lists) Expect(account string) { st.held.expect(account, st.Now()) }

// Ahead reads ahead for accounts that are expected to search, one after the other.
type Ahead struct{ lists *Lists }

// NewAhead makes the reader of these lists.
func NewAhead(l *Lists) *Ahead { return &Ahead{l} }

// Serve reads until ctx ends.
func (a *Ahead) Serve(ctx context.Context) error {
	for {
		select {
		case account := <-a.lists.held.ahead:
			a.read(ctx, account)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (a *Ahead) read(ctx context.Context, account string) {
	ctx, cancel := context.WithTimeout(ctx, aheadFor)
	defer cancel()
	// Where this fails, the search itself reads.
	_, _ = a.lists.List(ctx, Query{Account: account, Text: nobody, Limit: 1})
}

// String names the actor in the supervisor's log.
func (a *Ahead) String() string { return "search" }

// expect queues an account, once in as long as what is read is held.
func (h *held) expect(account string, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for other, at := range h.expected {
		if now.Sub(at) >= heldFor {
			delete(h.expected, other)
		}
	}
	if _, queued := h.expected[account]; queued {
		return
	}
	select {
	case h.ahead <- account:
		h.expected[account] = now
	default: // many are; its next page asks again
	}
}
