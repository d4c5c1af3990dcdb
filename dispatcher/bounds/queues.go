package bounds

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Queues holds the items that wait at one place, in a queue for each account. The queues are served
// round-robin. It uses memory only for the items it holds: most places never get a second one.
type Queues[T any] struct {
	full  int             // a caller that waits for room waits until half as many are left
	ready chan<- struct{} // gets a token when something has been put
	room  chan struct{}   // a token when it has emptied to a half

	mu     sync.Mutex
	queues []queue[T]
	next   int // the queue that is served next
	n      int
}

// queue is the waiting items of one account.
type queue[T any] struct {
	account string
	waiting []T
}

// NewQueues returns empty queues that are full with the given number of items in all. ready gets a token when
// an item is put.
func NewQueues[T any](full int, ready chan<- struct{}) *Queues[T] {
	return &Queues[T]{full: full, ready: ready, room: make(chan struct{}, 1)}
}

// Put adds one item of the account, unless as many as limit wait already. An account always has room for as
// many as reserved: others cannot use it.
func (b *Queues[T]) Put(account string, one T, limit, reserved int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.queues, func(q queue[T]) bool { return q.account == account })
	if b.n >= limit && i >= 0 && len(b.queues[i].waiting) >= reserved {
		return false
	}
	if i < 0 {
		i = len(b.queues)
		b.queues = append(b.queues, queue[T]{account: account})
	}
	b.queues[i].waiting = append(b.queues[i].waiting, one)
	b.n++
	Signal(b.ready)
	return true
}

// Take returns the item that has waited longest, of the next account of which one may begin; not ok: there is
// none. A nil allowed allows all. It is called under the queues' lock.
func (b *Queues[T]) Take(allowed func(account string) bool) (one T, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.queues {
		at := (b.next + i) % len(b.queues)
		if allowed == nil || allowed(b.queues[at].account) {
			return b.takeFrom(at), true
		}
	}
	return one, false
}

func (b *Queues[T]) takeFrom(at int) T {
	q := &b.queues[at]
	one := q.waiting[0]
	clear(q.waiting[:1])
	q.waiting = q.waiting[1:]
	b.next = at + 1
	if len(q.waiting) == 0 {
		b.queues = slices.Delete(b.queues, at, at+1)
		b.next = at
	}
	if b.n--; b.n == b.full/2 {
		Signal(b.room)
	}
	if b.n == 0 {
		b.queues = nil // a burst's memory goes with it
	}
	return one
}

// RemoveAll removes and returns the items that wanted selects, and leaves the others where they are. A nil
// wanted selects all.
func (b *Queues[T]) RemoveAll(wanted func(T) bool) (taken []T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.queues {
		q := &b.queues[i]
		q.waiting = slices.DeleteFunc(q.waiting, func(one T) bool {
			if wanted == nil || wanted(one) {
				taken = append(taken, one)
				return true
			}
			return false
		})
	}
	b.queues = slices.DeleteFunc(b.queues, func(q queue[T]) bool { return len(q.waiting) == 0 })
	b.n, b.next = b.n-len(taken), 0
	return taken
}

// Len returns how many wait.
func (b *Queues[T]) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.n
}

// AwaitSpace waits until full queues have emptied to a half, and reports whether they have.
func (b *Queues[T]) AwaitSpace(ctx context.Context, limit time.Duration) bool {
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	for {
		if b.Len() <= b.full/2 {
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
