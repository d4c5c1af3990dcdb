package dispatcher

import (
	"testing"
	"time"

	"verifyd/sessions"
)

// What was copied from another store keeps its expiry there, whatever this one's retention.
func TestEndAtIsTheOutcomesOwn(t *testing.T) {
	d, at := &shared{c: Config{Now: time.Now}.withDefaults()}, time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	dl := &delivery{Completion: sessions.Completion{CompletedAt: at}}
	if _, ok := d.endAt(dl); ok {
		t.Error("an end, and nobody knows how long outcomes are kept")
	}
	d.keptFor.Store(int64(72 * time.Hour))
	if end, ok := d.endAt(dl); !ok || !end.Equal(at.Add(72*time.Hour-d.c.EndBefore)) {
		t.Errorf("%s, %t", end, ok)
	}
	dl.KeptUntil = at.Add(2 * time.Hour)
	if end, ok := d.endAt(dl); !ok || !end.Equal(at.Add(2*time.Hour-d.c.EndBefore)) {
		t.Errorf("brought from elsewhere: %s, %t", end, ok)
	}
}
