package limit

import "sync"

// Making bounds how many things somebody makes, where the list that counts them is a moment behind: those
// that are being made count too, so that no more are made at once than one after the other. Its methods are
// safe for concurrent use.
type Making struct {
	mu    sync.Mutex
	under map[string]int // being made, by whose they are
}

// NewMaking returns one in which nothing is being made.
func NewMaking() *Making { return &Making{under: map[string]int{}} }

// Begin reports whether somebody may make one more: whether they have fewer than most, those that are being
// made included. end must be called, once listed counts the new one, or if it was not made.
func (m *Making) Begin(whose string, most int, listed func() int) (end func(), ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if listed()+m.under[whose] >= most { // counted in here: what has ended is listed
		return func() {}, false
	}
	m.under[whose]++
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.under[whose]--; m.under[whose] == 0 {
			delete(m.under, whose)
		}
	}, true
}
