package dispatcher

import (
	"context"
	"sync"
	"time"
)

// mailbox is what waits at a destination. It takes memory only for what it holds: most destinations never see a second delivery.
type mailbox struct {
	mu      sync.Mutex
	waiting []*delivery
	some    chan struct{} // holds a token while something waits
	room    chan struct{} // a token when it has emptied to a half
}

func newMailbox() *mailbox {
	return &mailbox{some: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

// put adds a delivery, unless as many as most wait already.
func (b *mailbox) put(dl *delivery, most int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) >= most {
		return false
	}
	b.waiting = append(b.waiting, dl)
	tell(b.some)
	return true
}

// take gives the delivery that has waited longest, or nil.
func (b *mailbox) take() *delivery {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 {
		return nil
	}
	dl := b.waiting[0]
	b.waiting[0] = nil
	b.waiting = b.waiting[1:]
	if len(b.waiting) == waitingMost/2 {
		tell(b.room)
	}
	if len(b.waiting) == 0 {
		b.waiting = nil // a burst's memory goes with it
		return dl
	}
	tell(b.some)
	return dl
}

func (b *mailbox) empty() bool { return b.count() == 0 }

func (b *mailbox) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting)
}

// awaitRoom waits until a full mailbox has emptied to a half, and says whether it has.
func (b *mailbox) awaitRoom(ctx context.Context, most time.Duration) bool {
	late := time.NewTimer(most)
	defer late.Stop()
	for {
		if b.count() <= waitingMost/2 {
			return true
		}
		select {
		case <-b.room:
		case <-late.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// tell leaves a token, unless one lies there.
func tell(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
