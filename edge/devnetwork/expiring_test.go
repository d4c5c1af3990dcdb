package devnetwork

import (
	"testing"
	"time"
)

func TestExpiringIsBoundedInNumberAndTime(t *testing.T) {
	now := time.Unix(0, 0)
	s := newExpiring[int](3, time.Minute, func() time.Time { return now })
	var keys []string
	for i := range 5 {
		keys = append(keys, s.put(i))
	}
	for i, want := range []bool{false, false, true, true, true} { // the oldest was dropped
		if v, ok := s.get(keys[i]); ok != want || ok && v != i {
			t.Errorf("item %d: %d, %v", i, v, ok)
		}
	}
	if _, ok := s.take(keys[4]); !ok {
		t.Error("an item could not be taken")
	}
	if _, ok := s.take(keys[4]); ok {
		t.Error("an item was taken twice")
	}
	now = now.Add(time.Minute)
	if _, ok := s.get(keys[3]); ok {
		t.Error("an item outlived its life")
	}
	last := s.put(9)
	if len(s.items) != 1 || len(s.order) != 1 {
		t.Errorf("expired items stay: %d items, %d in order", len(s.items), len(s.order))
	}
	if v, ok := s.get(last); !ok || v != 9 {
		t.Error("the new item is missing")
	}
	if _, ok := s.get(""); ok {
		t.Error("the empty key found something")
	}
}

func TestExpiringForgetsWhatWasTaken(t *testing.T) {
	s := newExpiring[int](100, time.Minute, time.Now)
	for i := range 1000 {
		s.take(s.put(i))
	}
	if len(s.items) != 0 || len(s.order) > 100 {
		t.Errorf("%d items, %d in order after all were taken", len(s.items), len(s.order))
	}
}
