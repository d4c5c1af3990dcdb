package lists

import (
	"context"
	"fmt"
	"sync"
	"time"

	"verifyd/natsconf"
)

const (
	// maxHeld bounds the memory of the spans of all accounts: about a million sessions.
	maxHeld = 128 << 20
	// heldFor is how long a span is held after its last use: one search is often followed by another soon.
	heldFor = 15 * time.Minute
	// sweepEvery is how often spans are looked for that were not used for so long.
	sweepEvery = time.Minute
)

// held holds the spans that are in memory, one for each account whose sessions were listed recently. Records
// are written once, so a span is never wrong about them; records stored since are read before it is used.
type held struct {
	mu       sync.Mutex
	spans    map[string]*heldSpan
	bytes    int
	maxBytes int         // maxHeld, except in tests
	sweep    *time.Timer // nil: nothing is held

	ahead    chan reading         // what Ahead reads next
	expected map[string]time.Time // when each account was queued
	reading  map[string]bool      // what Ahead has begun, and not ended
}

type heldSpan struct {
	busy  chan struct{} // holds one token while the span is in use
	span  *span
	bytes int
	rows  int // of the span, when it was last released
	used  time.Time
}

func newHeld() *held {
	return &held{
		spans: map[string]*heldSpan{}, maxBytes: maxHeld,
		ahead: make(chan reading, maxAhead), expected: map[string]time.Time{},
		reading: map[string]bool{},
	}
}

// borrow returns an account's span, which belongs to the caller until it is released. If another list or
// Ahead uses the span, borrow waits for it, or returns nil if wait is not set. The error is
// natsconf.ErrUnavailable, if ctx ends.
func (h *held) borrow(ctx context.Context, account string, wait bool) (_ *span, release func(), err error) {
	h.mu.Lock()
	e := h.spans[account]
	if e == nil {
		e = &heldSpan{busy: make(chan struct{}, 1), span: newSpan(account, 0)}
		h.spans[account] = e
	}
	h.mu.Unlock()
	release = func() { h.release(account, e) }
	select {
	case e.busy <- struct{}{}:
		return e.span, release, nil
	default:
	}
	if !wait {
		return nil, func() {}, nil
	}
	select {
	case e.busy <- struct{}{}:
		return e.span, release, nil
	case <-ctx.Done():
		return nil, nil, fmt.Errorf("wait for another list of the account: %w: %w",
			natsconf.ErrUnavailable, ctx.Err())
	}
}

// release ends the use of a span, and makes room if too much is held. It drops spans that are not in use,
// the least recently used first, and then the oldest rows of this one.
func (h *held) release(account string, e *heldSpan) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e.used = time.Now()
	if h.spans[account] == e { // otherwise it was dropped while a caller waited for it
		h.weigh(e)
		for h.bytes > h.maxBytes && h.dropOldest(e) {
			continue
		}
		if h.bytes > h.maxBytes {
			e.span.cut(max(h.maxBytes-(h.bytes-e.bytes), 0))
			h.weigh(e)
		}
		if h.sweep == nil {
			h.sweep = time.AfterFunc(sweepEvery, h.dropIdle)
		}
	}
	<-e.busy
}

// sizeOf returns how many sessions of an account are in memory, and how many bytes they take.
func (h *held) sizeOf(account string) (rows, bytes int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.spans[account]; e != nil {
		return e.rows, e.bytes
	}
	return 0, 0
}

func (h *held) weigh(e *heldSpan) {
	size := e.span.bytes()
	h.bytes += size - e.bytes
	e.bytes, e.rows = size, e.span.len()
}

// dropOldest drops the least recently used span, except for one, and reports whether there was one.
func (h *held) dropOldest(except *heldSpan) bool {
	oldest := ""
	for account, e := range h.spans {
		if e != except && len(e.busy) == 0 && (oldest == "" || e.used.Before(h.spans[oldest].used)) {
			oldest = account
		}
	}
	if oldest == "" {
		return false
	}
	h.drop(oldest)
	return true
}

func (h *held) drop(account string) {
	h.bytes -= h.spans[account].bytes
	delete(h.spans, account)
}

// dropIdle drops spans that were not used for heldFor.
func (h *held) dropIdle() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for account, e := range h.spans {
		if len(e.busy) == 0 && time.Since(e.used) >= heldFor {
			h.drop(account)
		}
	}
	if h.sweep = nil; len(h.spans) > 0 {
		h.sweep = time.AfterFunc(sweepEvery, h.dropIdle)
	}
}
