package lists

import (
	"context"
	"time"
)

const (
	// aheadFor bounds how long one account is read ahead: enough for a quarter of a million sessions. A
	// search that starts during that time waits for it, and has time of its own left.
	aheadFor = 3 * time.Second
	// maxAhead bounds the queue of accounts.
	maxAhead = 16
	// noMatch matches no user, group, reference or key: a search for it examines all sessions.
	noMatch = "\x00"
)

// Expect announces that an account's sessions may be searched soon, such as when a page of its dashboard is
// opened. If an Ahead is running, it then reads what the first search needs. Expect returns at once.
func (st *Lists) Expect(account string) { st.held.expect(account, st.Now()) }

// Ahead reads ahead for the accounts that Expect announces, one after the other.
type Ahead struct{ lists *Lists }

// NewAhead returns an Ahead for these lists.
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
	// If this fails, the search itself reads the records.
	_, _ = a.lists.List(ctx, Query{Account: account, Text: noMatch, Limit: 1})
}

// String names the actor in the supervisor's log.
func (a *Ahead) String() string { return "search" }

// expect queues an account, once in heldFor at most.
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
	default: // the queue is full; the account's next page tries again
	}
}
