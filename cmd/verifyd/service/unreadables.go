package service

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"verifyd/cmd/verifyd/alarm"
	"verifyd/sessions/facts"
)

// maxUnreadables bounds the subjects that are remembered, so that operators are notified of each once.
const maxUnreadables = 10_000

// unreadables is the messages that this process has met in the place of facts and that no verifyd has
// written. The sessions report them, the alarms ask.
type unreadables struct {
	log zerolog.Logger
	now func() time.Time

	mu   sync.Mutex
	seen map[string]bool // subjects
	last *facts.UnreadableError
	at   time.Time // when it was met
}

func newUnreadables(log zerolog.Logger, now func() time.Time) *unreadables {
	return &unreadables{log: log, now: now, seen: map[string]bool{}}
}

// onUnreadable records one. The logger withholds the line if it comes over and over.
func (u *unreadables) onUnreadable(e *facts.UnreadableError) {
	u.log.Error().Err(e.Cause).Str("sid", string(e.Session)).Str("subject", e.Subject).
		Uint64("sequence", e.Sequence).Time("stored", e.At).
		Msg("the message in place of a session's fact was written by no verifyd")
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.seen[e.Subject] {
		return
	}
	// beyond it the same ones may be reported again, rather than new ones never
	if len(u.seen) < maxUnreadables {
		u.seen[e.Subject] = true
	}
	u.last, u.at = e, u.now()
}

// Conditions returns what operators should know, until nothing new was met for a while.
func (u *unreadables) Conditions(context.Context) []alarm.Condition {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.last == nil || u.now().Sub(u.at) >= QuietAfter {
		return nil
	}
	return []alarm.Condition{{
		Type: alarm.FactsUnreadable,
		Detail: fmt.Sprintf("there is a message on %s (sequence %d) that no verifyd has written: "+
			"somebody has used a NATS credential for it; what it was to say of the session is not known",
			u.last.Subject, u.last.Sequence),
		Data: map[string]any{
			"count": len(u.seen), "session": u.last.Session, "subject": u.last.Subject,
			"sequence": u.last.Sequence,
		},
	}}
}
