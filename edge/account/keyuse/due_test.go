package keyuse

import (
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// Within the hour a use adds no entry to the list of pending writes.
func TestUseWithinTheHourIsNotDue(t *testing.T) {
	u := New(nil, zerolog.Nop())
	now := time.Now()
	for i, want := range []int{1, 0, 1} {
		u.RecordUse("key_a", now.Add([]time.Duration{0, useEvery - 1, useEvery}[i]))
		if len(u.due) != want {
			t.Errorf("use %d: %d are due, want %d", i+1, len(u.due), want)
		}
		clear(u.due)
	}
}
