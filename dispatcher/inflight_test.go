package dispatcher

import (
	"testing"
	"time"

	"verifyd/sessions"
)

// A process that cannot learn whether its claims were stored goes on to know that it sent nothing under
// them, however many others follow and however late it looks again: otherwise their end would be called
// unknown.
func TestUnconfirmedClaimsAreRemembered(t *testing.T) {
	t.Parallel()
	l := newInFlightSet()
	start := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	claim := func(id sessions.ID, after time.Duration) sessions.Claim {
		at := start.Add(after)
		return sessions.Claim{Session: id, Number: 1, At: at, SettleAfter: at.Add(20 * time.Second)}
	}
	first := claim("first", 0)
	l.addUnconfirmed(first)
	l.addUnconfirmed(claim("second", 50*time.Minute))
	l.addUnconfirmed(claim("third", 100*time.Minute))
	if !l.isUnconfirmed("first", 1) || !l.isUnconfirmed("second", 1) || !l.isUnconfirmed("third", 1) {
		t.Error("a claim that was made in vain is forgotten while it may be looked at")
	}
	if l.isUnconfirmed("first", 2) || l.isUnconfirmed("fourth", 1) {
		t.Error("an attempt that was never claimed counts as claimed in vain")
	}
	l.dropUnconfirmed(first)
	if l.isUnconfirmed("first", 1) {
		t.Error("an attempt under which something may be sent counts as made in vain")
	}
	l.addUnconfirmed(claim("fifth", 4*time.Hour))
	l.addUnconfirmed(claim("sixth", 6*time.Hour))
	if l.isUnconfirmed("second", 1) {
		t.Error("claims are kept without an end")
	}
}
