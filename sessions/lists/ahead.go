package lists

import (
	"context"
	"time"

	"verifyd/natsconf/topology"
)

const (
	// readFor bounds one step of Ahead. The longest reads the outcomes of a million sessions.
	readFor = 30 * time.Second
	// maxAhead bounds the queue of accounts.
	maxAhead = 16
)

// Expect announces that an account's sessions may be searched soon, such as when a page of its dashboard is
// opened. If an Ahead is running, it then reads what the first search needs. Expect returns at once.
func (st *Lists) Expect(account string) { st.held.expect(account) }

// Ahead reads the accounts that Expect announces, and those of which a search could not read enough in its
// time: their records and then their outcomes, each account a window at a time, in turns. So no account waits
// for all of another one, and a search reads on between two windows.
type Ahead struct{ lists *Lists }

// NewAhead returns an Ahead for these lists.
func NewAhead(l *Lists) *Ahead { return &Ahead{l} }

// Serve reads until ctx ends.
func (a *Ahead) Serve(ctx context.Context) error {
	for {
		select {
		case r := <-a.lists.held.ahead:
			a.lists.held.setReading(r.account, true)
			more, err := a.lists.readOn(ctx, &r)
			if more && err == nil && a.lists.held.queue(r) {
				continue
			}
			a.lists.held.setReading(r.account, false)
			if more || err != nil {
				a.lists.held.unexpect(r.account) // the account's next search, or page, asks again
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// String names the actor in the supervisor's log.
func (a *Ahead) String() string { return "search" }

// reading is an account that Ahead reads.
type reading struct {
	account string
	low     uint64 // what is above has been read; 0: Ahead has just begun
}

// readOn reads one window of an account's records, or, after the last, their outcomes. It reports whether
// there is more to read. If there is no room in memory for what it has read before, there is not.
func (st *Lists) readOn(ctx context.Context, r *reading) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, readFor)
	defer cancel()
	s, release, err := st.held.borrow(ctx, r.account, true)
	if err != nil {
		return false, err
	}
	defer release()
	first, last, err := st.Conn.Bounds(ctx, topology.BucketStream(topology.BucketSessions))
	if err != nil {
		return false, err
	}
	first = max(first, 1)
	l := lister{st: st, q: Query{Account: r.account}, first: first, next: last}
	if err := l.position(ctx, s); err != nil {
		return false, err
	}
	switch {
	case r.low > 0 && s.low > r.low:
		return false, nil
	case s.low > first:
		err = s.down(ctx, st, first, maxRecords)
		r.low = s.low
		return err == nil, err
	}
	var rows []*row
	for i := range s.len() {
		rows = append(rows, s.at(i))
	}
	return false, s.look(ctx, st, rows)
}

// expect queues an account, once in heldFor at most.
func (h *held) expect(account string) {
	h.mu.Lock()
	now := time.Now()
	for other, at := range h.expected {
		if now.Sub(at) >= heldFor {
			delete(h.expected, other)
		}
	}
	_, queued := h.expected[account]
	if !queued {
		h.expected[account] = now
	}
	h.mu.Unlock()
	if !queued && !h.queue(reading{account: account}) {
		h.unexpect(account)
	}
}

// queue reports whether there was room in the queue.
func (h *held) queue(r reading) bool {
	select {
	case h.ahead <- r:
		return true
	default:
		return false
	}
}

func (h *held) setReading(account string, is bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.reading[account] = is; !is {
		delete(h.reading, account)
	}
}

func (h *held) isReading(account string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reading[account]
}

func (h *held) unexpect(account string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.expected, account)
}
