package lists

import (
	"context"
	"fmt"
	"sync"
	"time"

	"verifyd/natsconf"
)

const (
	// maxHeld bounds what the spans of all accounts take in memory: about a million sessions.
	maxHeld = 128 << 20
	// heldFor is how long a span is held after its last use: who looks for sessions looks again soon.
	heldFor = 15 * time.Minute
)

// held are the spans that are in memory, one for each account whose sessions were listed lately. Records are
// written once, so that a span is never wrong about them; what was stored since is read before it is used.
type held struct {
	mu    sync.Mutex
	spans map[string]*heldSpan
	bytes int
	most  int         // maxHeld, but for tests
	sweep *time.Timer // nil: nothing is held

	ahead    chan string          // accounts for which is to be read ahead
	expected map[string]time.Time // those that were put there, and when
}

type heldSpan struct {
	busy  chan struct{} // one place: who uses the span
	hurry chan struct{} // whoever waits for it sends into this; a Keeper that rests meanwhile receives
	span  *span
	bytes int
	used  time.Time
}

func newHeld() *held {
	return &held{
		spans: map[string]*heldSpan{}, most: maxHeld,
		ahead: make(chan string, maxAhead), expected: map[string]time.Time{},
	}
}

// borrow returns an account's span, which is the caller's until it is released. Where another list or a
// Keeper uses it, the caller waits for what that one reads, or goes without one (nil). The error is
// natsconf.ErrUnavailable, when ctx ends.
func (h *held) borrow(ctx context.Context, account string, wait bool) (_ *span, release func(), err error) {
	h.mu.Lock()
	e := h.spans[account]
	if e == nil {
		e = &heldSpan{
			busy: make(chan struct{}, 1), hurry: make(chan struct{}), span: newSpan(account, 0),
		}
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
	for {
		select {
		case e.busy <- struct{}{}:
			return e.span, release, nil
		case e.hurry <- struct{}{}:
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("wait for another list of the account: %w: %w",
				natsconf.ErrUnavailable, ctx.Err())
		}
	}
}

// hurryOf returns what can be received from while somebody waits for an account's span, to whoever has it.
func (h *held) hurryOf(account string) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.spans[account].hurry
}

// release ends the use of a span, and makes room where too much is held: by dropping spans that nobody uses,
// the one that was used longest ago first, and then by the oldest rows of this one.
func (h *held) release(account string, e *heldSpan) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e.used = time.Now()
	if h.spans[account] == e { // otherwise it was dropped while somebody waited for it
		h.weigh(e)
		for h.bytes > h.most && h.dropOldest(e) {
			continue
		}
		if h.bytes > h.most {
			e.span.cut(max(h.most-(h.bytes-e.bytes), 0))
			h.weigh(e)
		}
		if h.sweep == nil {
			h.sweep = time.AfterFunc(heldFor, h.dropIdle)
		}
	}
	<-e.busy
}

// room returns how many bytes may be held more, of so many.
func (h *held) room(of int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return of - h.bytes
}

func (h *held) weigh(e *heldSpan) {
	size := e.span.bytes()
	h.bytes += size - e.bytes
	e.bytes = size
}

// dropOldest drops the span that was used longest ago, besides one, and reports whether there was one.
func (h *held) dropOldest(but *heldSpan) bool {
	oldest := ""
	for account, e := range h.spans {
		if e != but && len(e.busy) == 0 && (oldest == "" || e.used.Before(h.spans[oldest].used)) {
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

// dropIdle drops what was not used for a while.
func (h *held) dropIdle() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for account, e := range h.spans {
		if len(e.busy) == 0 && time.Since(e.used) >= heldFor {
			h.drop(account)
		}
	}
	if h.sweep = nil; len(h.spans) > 0 {
		h.sweep = time.AfterFunc(heldFor, h.dropIdle)
	}
}
