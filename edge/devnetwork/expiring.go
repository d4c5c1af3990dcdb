package devnetwork

import (
	"sync"
	"time"
)

// expiring keeps values under random keys for a fixed life, at most max of them. All lives are equal, so the
// order of arrival is the order of expiry, and one queue serves both bounds.
type expiring[T any] struct {
	max  int
	life time.Duration
	now  func() time.Time

	mu    sync.Mutex
	items map[string]kept[T]
	order []string // by arrival; may hold keys that were taken
}

type kept[T any] struct {
	value T
	until time.Time
}

func newExpiring[T any](maxItems int, life time.Duration, now func() time.Time) *expiring[T] {
	return &expiring[T]{max: maxItems, life: life, now: now, items: map[string]kept[T]{}}
}

// put keeps v and returns its key. The oldest give way when the expiring is full.
func (s *expiring[T]) put(v T) string {
	key, now := newSecret(), s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.order) > 0 {
		oldest := s.order[0]
		item, there := s.items[oldest]
		if there && now.Before(item.until) && len(s.order) < s.max {
			break
		}
		delete(s.items, oldest)
		s.order = s.order[1:]
	}
	s.items[key] = kept[T]{v, now.Add(s.life)}
	s.order = append(s.order, key)
	return key
}

// get returns what is kept under key.
func (s *expiring[T]) get(key string) (T, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find(key)
}

// take returns what is kept under key and keeps it no longer: of two callers one gets it.
func (s *expiring[T]) take(key string) (T, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.find(key)
	delete(s.items, key)
	return v, ok
}

func (s *expiring[T]) find(key string) (T, bool) {
	item, ok := s.items[key]
	if !ok || !s.now().Before(item.until) {
		var none T
		return none, false
	}
	return item.value, true
}
