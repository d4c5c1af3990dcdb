package dispatcher

import (
	"context"
	"slices"
	"sync"
	"time"
)

// mailbox holds what waits at a destination, in a queue for each account; the queues are served round-robin.
// It uses memory only for what it holds: most destinations never get a second delivery.
type mailbox struct {
	mu     sync.Mutex
	queues []accountQueue
	next   int // the queue that is served next
	n      int
	ready  chan struct{} // a token when there may be something to begin
	room   chan struct{} // a token when it has emptied to a half
}

// accountQueue is what waits of one account.
type accountQueue struct {
	account string
	waiting []*delivery
}

func newMailbox() *mailbox {
	return &mailbox{ready: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

// put adds a delivery, unless as many as limit wait already. Up to reserved an account always has room:
// others cannot use it.
func (b *mailbox) put(dl *delivery, limit, reserved int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.queues, func(l accountQueue) bool { return l.account == dl.Account })
	if b.n >= limit && i >= 0 && len(b.queues[i].waiting) >= reserved {
		return false
	}
	if i < 0 {
		i = len(b.queues)
		b.queues = append(b.queues, accountQueue{account: dl.Account})
	}
	b.queues[i].waiting = append(b.queues[i].waiting, dl)
	b.n++
	signal(b.ready)
	return true
}

// take returns the delivery that has waited longest of the next account of which one may begin; nil where
// there is none. A nil allowed allows all.
func (b *mailbox) take(allowed func(account string) bool) *delivery {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.queues {
		at := (b.next + i) % len(b.queues)
		if allowed == nil || allowed(b.queues[at].account) {
			return b.takeFrom(at)
		}
	}
	return nil
}

func (b *mailbox) takeFrom(at int) *delivery {
	l := &b.queues[at]
	dl := l.waiting[0]
	l.waiting[0] = nil
	l.waiting = l.waiting[1:]
	b.next = at + 1
	if len(l.waiting) == 0 {
		b.queues = slices.Delete(b.queues, at, at+1)
		b.next = at
	}
	if b.n--; b.n == maxWaiting/2 {
		signal(b.room)
	}
	if b.n == 0 {
		b.queues = nil // a burst's memory goes with it
	}
	return dl
}

// removeAll returns all deliveries that are wanted, and leaves the others where they are.
func (b *mailbox) removeAll(wanted func(*delivery) bool) (taken []*delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.queues {
		l := &b.queues[i]
		l.waiting = slices.DeleteFunc(l.waiting, func(dl *delivery) bool {
			if wanted(dl) {
				taken = append(taken, dl)
				return true
			}
			return false
		})
	}
	b.queues = slices.DeleteFunc(b.queues, func(l accountQueue) bool { return len(l.waiting) == 0 })
	b.n, b.next = b.n-len(taken), 0
	return taken
}

func (b *mailbox) empty() bool { return b.count() == 0 }

func (b *mailbox) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.n
}

// awaitRoom waits until a full mailbox has emptied to a half, and reports whether it has.
func (b *mailbox) awaitRoom(ctx context.Context, limit time.Duration) bool {
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	for {
		if b.count() <= maxWaiting/2 {
			return true
		}
		select {
		case <-b.room:
		case <-timeout.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// signal leaves a token, unless there is one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
