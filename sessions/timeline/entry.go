package timeline

import (
	"cmp"
	"slices"
	"time"

	"verifyd/sessions"
	"verifyd/sessions/facts"
)

// EntryKind is what an Entry reports.
type EntryKind string

// The kinds of an entry, in the order of entries of one instant.
const (
	EntryCreated         EntryKind = "created"   // the session was started
	EntryEvent           EntryKind = "event"     // Event
	EntryExpired         EntryKind = "expired"   // the session's lifetime ended before it was completed
	EntryCompleted       EntryKind = "completed" // the view's outcome was written
	EntryResendRequested EntryKind = "asked"     // Resend: somebody asked for one more attempt
	EntryClaimed         EntryKind = "claimed"   // Claim
	EntryResult          EntryKind = "result"    // Result
)

// Entry is one line of a timeline, as data; the code that shows it finds the words.
type Entry struct {
	At     time.Time
	Kind   EntryKind
	Event  *Event        // of EntryEvent
	Resend *facts.Resend // of EntryResendRequested
	Claim  *facts.Claim  // of EntryClaimed
	Result *facts.Result // of EntryResult

	order time.Time // At, but not before its cause: machines' clocks differ
}

// Entries returns what is known of a session's course, oldest first, from its facts, its events, and who
// requested its attempts. An effect never precedes its cause, though its instant, taken by another machine's
// clock, may be earlier.
func Entries(v facts.View, events []Event, requested map[int]*facts.Resend) []Entry {
	entries := factEntries(v, requested)
	for i := range events {
		e := &events[i]
		after := v.CreatedAt
		if e.Name == EventNotSent {
			after = v.CompletedAt
		}
		order := later(e.At, after)
		if e.Name == EventFinished && !v.CompletedAt.IsZero() {
			// with the outcome that it shows, though the callback may be on its way by then
			order = v.CompletedAt
		}
		entries = append(entries, Entry{At: e.At, Kind: EntryEvent, Event: e, order: order})
	}
	slices.SortStableFunc(entries, func(a, b Entry) int {
		return cmp.Or(a.order.Compare(b.order), cmp.Compare(a.rank(), b.rank()))
	})
	return entries
}

// factEntries returns the facts of a view in the order of cause and effect.
func factEntries(v facts.View, requested map[int]*facts.Resend) []Entry {
	entries := []Entry{{At: v.CreatedAt, Kind: EntryCreated}}
	if v.State == sessions.Expired {
		entries = append(entries, Entry{At: v.ExpiresAt, Kind: EntryExpired})
	}
	if !v.CompletedAt.IsZero() {
		entries = append(entries, Entry{At: v.CompletedAt, Kind: EntryCompleted})
	}
	ask := func(n int) {
		if r := requested[n]; r != nil {
			entries = append(entries, Entry{At: r.At, Kind: EntryResendRequested, Resend: r})
		}
	}
	for i := range v.Delivery.Attempts {
		a := &v.Delivery.Attempts[i]
		ask(a.Claim.Number)
		entries = append(entries, Entry{At: a.Claim.At, Kind: EntryClaimed, Claim: &a.Claim})
		if a.Result != nil {
			entries = append(entries, Entry{At: a.Result.At, Kind: EntryResult, Result: a.Result})
		}
	}
	ask(len(v.Delivery.Attempts) + 1)
	var floor time.Time
	for i := range entries {
		floor = later(entries[i].At, floor)
		entries[i].order = floor
	}
	return entries
}

// rank orders the entries of one instant. Facts of one rank keep the order that they came in, which is that
// of cause and effect.
func (e Entry) rank() int {
	switch {
	case e.Kind == EntryCreated:
		return 0
	case e.Kind == EntryEvent && e.Event.Name != EventNotSent && e.Event.Name != EventFinished:
		return 1
	case e.Kind == EntryExpired, e.Kind == EntryCompleted:
		return 2
	case e.Kind == EntryEvent:
		return 3
	default:
		return 4 // requests, claims and results
	}
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
