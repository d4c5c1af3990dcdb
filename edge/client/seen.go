package client

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"
)

// Seen remembers which callbacks were handled, by webhook-id, so that each is handled once. MemorySeen is the
// one of a single process; several processes behind one callback_url share one of their own, for instance a
// table with the id as its primary key.
type Seen interface {
	// Begin takes an id for its caller, and says what is known of it. Only with SeenNew does the caller
	// handle the callback, and then calls End. Of two who begin at once one gets SeenBusy.
	Begin(ctx context.Context, id string) (Sighting, error)
	// End releases the id: handled is true if it was handled permanently, false if it was not and may be
	// begun again. A shared memory also needs an end for ids whose process died: longer than a handler
	// takes, shorter than the pause to the next attempt.
	End(ctx context.Context, id string, handled bool) error
}

// Sighting is what is known of a webhook-id.
type Sighting int

// The sightings.
const (
	SeenNew     Sighting = iota // never handled
	SeenBusy                    // being handled at this moment
	SeenHandled                 // handled permanently
)

// The bounds of a MemorySeen. An entry is about 200 bytes.
const (
	// DefaultSeenFor is as long as the service keeps results, and so may send one again.
	DefaultSeenFor = 72 * time.Hour
	// DefaultSeenMost is far above what one process handles in the 5 minutes in which a callback could be
	// replayed.
	DefaultSeenMost = 100_000
)

// MemorySeen remembers in memory, bounded by time and by number; beyond the number the oldest are forgotten.
// It forgets everything when the process ends.
type MemorySeen struct {
	lasting time.Duration
	limit   int
	now     func() time.Time

	mu      sync.Mutex
	busy    map[string]bool
	handled map[string]*list.Element
	order   *list.List // of sighted, oldest first
}

type sighted struct {
	id string
	at time.Time
}

// NewMemorySeen makes a memory of most ids at a time, each for lasting. Zero values are the defaults.
func NewMemorySeen(lasting time.Duration, limit int) *MemorySeen {
	if lasting <= 0 {
		lasting = DefaultSeenFor
	}
	if limit <= 0 {
		limit = DefaultSeenMost
	}
	return &MemorySeen{
		lasting: lasting, limit: limit, now: time.Now, busy: map[string]bool{},
		handled: map[string]*list.Element{}, order: list.New(),
	}
}

// Begin takes an id. It never fails.
func (m *MemorySeen) Begin(_ context.Context, id string) (Sighting, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget()
	switch {
	case m.handled[id] != nil:
		return SeenHandled, nil
	case m.busy[id]:
		return SeenBusy, nil
	}
	m.busy[id] = true
	return SeenNew, nil
}

// End ends the handling of an id, which may begin again unless it was handled. It fails for an id that was
// not begun.
func (m *MemorySeen) End(_ context.Context, id string, handled bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.busy[id] {
		return errors.New("this webhook-id was not begun")
	}
	delete(m.busy, id)
	if handled {
		m.handled[id] = m.order.PushBack(sighted{id, m.now()})
		m.forget()
	}
	return nil
}

// forget drops what is too old or too much.
func (m *MemorySeen) forget() {
	for first := m.order.Front(); first != nil; first = m.order.Front() {
		s, ok := first.Value.(sighted)
		if ok && m.order.Len() <= m.limit && m.now().Sub(s.at) < m.lasting {
			return
		}
		m.order.Remove(first)
		delete(m.handled, s.id)
	}
}
