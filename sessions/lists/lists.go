// Package lists finds and counts what is stored of sessions: an account's sessions, the newest deliveries,
// the backlog, the verdicts, and the timeline of one session.
//
// It reads, and stores nothing in addition to the records and facts. The records of an account that a list
// has read stay in memory for a while (span, held), so that the next list does not read them again. Of an
// account with many sessions, the first search reads for a second, answers with what it has found and how
// much it has read (Progress), and Ahead reads the rest. The memory only says where to look: each session on
// a page is read from the leaders for that page, and a list reads what a span lacks before it uses the span.
package lists

import (
	"errors"
	"time"

	"verifyd/natsconf"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/records"
)

// ErrBadCursor is returned for a cursor that no list returned.
var ErrBadCursor = errors.New("not a cursor of this list")

// Page is a part of a list, newest session first.
type Page struct {
	Sessions []facts.View
	Next     string    // the cursor of the next page; empty if there is none
	Back     time.Time // the creation instant of the oldest session examined; zero if none was
	// Reading is set if the search ended early, since the account's sessions are still being read into
	// memory: the same search finds more a moment later.
	Reading *Progress
}

// Progress is how much of an account has been read into memory.
type Progress struct {
	Read, Of int64         // sessions
	Left     time.Duration // about how long the rest takes; zero if that is not known
}

// Seconds returns Left in whole seconds, rounded up.
func (p Progress) Seconds() int { return int((p.Left + time.Second - 1) / time.Second) }

// Lists finds and counts sessions in the store.
type Lists struct {
	*records.Reader

	held     *held
	few      uint64        // fewFacts, except in tests, as are the next two
	large    int           // large
	patience time.Duration // patience
}

// New returns the lists of a reader.
func New(r *records.Reader) *Lists {
	return &Lists{Reader: r, held: newHeld(), few: fewFacts, large: large, patience: patience}
}

// isNoView reports whether a session is on no list: its user was erased, it has aged out, or what is stored
// in its place is damaged or of a newer build. One such session does not hide others.
func isNoView(err error) bool {
	return errors.Is(err, sessions.ErrNotFound) || errors.Is(err, natsconf.ErrNewer) ||
		errors.Is(err, facts.ErrUnreadable)
}
