package dispatcher

import "sync"

// mailbox is what waits at a destination. It takes memory only for what it holds: most destinations never see a second delivery.
type mailbox struct {
	mu      sync.Mutex
	waiting []*delivery
	some    chan struct{} // holds a token while something waits
}

func newMailbox() *mailbox { return &mailbox{some: make(chan struct{}, 1)} }

// put adds a delivery, unless as many as most wait already.
func (b *mailbox) put(dl *delivery, most int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) >= most {
		return false
	}
	b.waiting = append(b.waiting, dl)
	b.tell()
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
	if len(b.waiting) == 0 {
		b.waiting = nil // a burst's memory goes with it
		return dl
	}
	b.tell()
	return dl
}

func (b *mailbox) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting) == 0
}

func (b *mailbox) tell() {
	select {
	case b.some <- struct{}{}:
	default:
	}
}
