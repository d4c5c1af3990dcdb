package sessions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"verifyd/natsconf"
)

// maxEvents bounds the events of one session that are read. An honest session has a handful; a user who
// presses "Continue" all the time has one for each press.
const maxEvents = 512

// EventName is the middle of an event's subject: one word of [a-z_].
type EventName string

// The events of a session; add new ones here.
const (
	EventSignIn       EventName = "sign_in"  // the user pressed Continue and was sent to Network
	EventNetworkError EventName = "trouble"  // Network failed to give a verdict: Detail; the user may try again
	EventNotSent      EventName = "not_sent" // a try of Attempt failed before the claim: Class, Detail, Timing, Next
)

// Event is something that happened to a session and that no promise depends on. It is for people: it may be
// missing after a crash.
type Event struct {
	Name    EventName `json:"-"`
	Session ID        `json:"-"`
	At      time.Time `json:"at"` // now where zero

	// What follows is set as the name asks for it.
	Network string        `json:"network,omitempty"` // id of the identity network
	Attempt int           `json:"attempt,omitzero"`
	Class   Class         `json:"class,omitempty"`
	Detail  string        `json:"detail,omitempty"` // one sentence for people, without URL or secrets
	Address string        `json:"address,omitempty"`
	Timing  Timing        `json:"timing,omitzero"`
	Next    time.Duration `json:"next,omitzero"` // the pause until the next try; zero where there is none

	key keyRef // of its session, which Detail and Address are stored under
}

// Of returns the event as one of a session: Detail and Address, which show where the callback URL leads, are
// stored sealed under its key.
func (e Event) Of(s Session) Event {
	e.Session, e.key = s.ID, s.key
	return e
}

// eventRecord is an Event as it is stored.
type eventRecord struct {
	Version int `json:"v"`
	Event
	Sealed []byte `json:"said,omitempty"` // of version 2: an answer, sealed, in place of the members of Event
}

// Emit puts an event on the session's timeline. It does not wait and promises nothing; an event whose name
// is not one word is dropped.
func (st *Store) Emit(e Event) {
	if data, ok := st.encodeEvent(e); ok {
		st.conn.Emit(eventSubject(string(e.Name), e.Session), data)
	}
}

func (st *Store) encodeEvent(e Event) ([]byte, bool) {
	if strings.Trim(string(e.Name), "abcdefghijklmnopqrstuvwxyz_") != "" || e.Name == "" {
		return nil, false
	}
	if e.At.IsZero() {
		e.At = st.instant()
	}
	r := eventRecord{Version: eventVersions.oldest, Event: e}
	if e.key != (keyRef{}) && e.Detail+e.Address != "" {
		r.Version, r.Sealed = eventVersions.newest, st.sealEvent(e)
		r.Detail, r.Address = "", ""
	}
	data, err := encodeRecord(r)
	return data, err == nil
}

// sealEvent seals what an event holds about the receiver. Nothing waits for an event: the key is in memory
// where its session was read just now, and otherwise the words are left out.
func (st *Store) sealEvent(e Event) []byte {
	key, ok := st.keys.cached(e.key)
	if !ok {
		return nil
	}
	details, err := sealer{key: key}.sealDetails(e.Session, receiverDetails{
		Detail: e.Detail, Address: e.Address,
	})
	if err != nil {
		return nil
	}
	return details
}

// EntryKind is what an Entry reports.
type EntryKind string

// The kinds of an entry, in the order of entries of one instant.
const (
	EntryCreated         EntryKind = "created"   // the session was started
	EntryEvent           EntryKind = "event"     // Event
	EntryExpired         EntryKind = "expired"   // the session's lifetime ended before anybody completed it
	EntryCompleted       EntryKind = "completed" // the view's outcome was written
	EntryResendRequested EntryKind = "asked"     // Resend: somebody asked for one more attempt
	EntryClaimed         EntryKind = "claimed"   // Claim
	EntryResult          EntryKind = "result"    // Result
)

// Entry is one line of a timeline, as data; whoever shows it finds the words.
type Entry struct {
	At     time.Time
	Kind   EntryKind
	Event  *Event  // of EntryEvent
	Resend *Resend // of EntryResendRequested
	Claim  *Claim  // of EntryClaimed
	Result *Result // of EntryResult

	order time.Time // At, but never before what caused it: machines' clocks differ
}

// Timeline returns a session and everything that is known of its course, oldest first. An effect never
// precedes its cause, though its instant, taken by another machine's clock, may be earlier. The errors are
// Read's.
func (st *Store) Timeline(ctx context.Context, id ID) (View, []Entry, error) {
	v, err := st.Read(ctx, id)
	if err != nil {
		return View{}, nil, err
	}
	events, err := st.events(ctx, v.Session)
	if err != nil {
		return View{}, nil, err
	}
	requested, err := st.resends(ctx, v)
	if err != nil {
		return View{}, nil, err
	}
	entries := v.entries(requested)
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
	return v, entries, nil
}

// resends reads who asked for a view's attempts, by number.
func (st *Store) resends(ctx context.Context, v View) (map[int]*Resend, error) {
	requested := map[int]*Resend{}
	for n := 2; n <= len(v.Delivery.Attempts)+1; n++ {
		r, err := st.ResendOf(ctx, v.ID, n)
		if err != nil {
			return nil, err
		}
		if r != nil {
			requested[n] = r
		}
	}
	return requested, nil
}

// entries returns the facts of a view in the order of cause and effect.
func (v View) entries(requested map[int]*Resend) []Entry {
	entries := []Entry{{At: v.CreatedAt, Kind: EntryCreated}}
	if v.State == Expired {
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
		return 4 // what was asked for, claimed and ended
	}
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// events reads a session's events from the leader. What a newer build wrote is left out.
func (st *Store) events(ctx context.Context, s Session) ([]Event, error) {
	id := s.ID
	var events []Event
	for seq := uint64(1); len(events) < maxEvents; {
		m, err := st.conn.Next(ctx, natsconf.StreamEvents, eventSubject("*", id), seq)
		if errors.Is(err, natsconf.ErrNotFound) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read the events of session %s: %w", id, err)
		}
		seq = m.Sequence + 1
		e, ok, err := st.decodeEvent(ctx, s, EventName(strings.Split(m.Subject, ".")[1]), m.Data)
		if err != nil {
			return nil, err
		}
		if ok {
			events = append(events, e)
		}
	}
	return events, nil
}

// LastNotSent returns the last try of a session's callback that sent nothing. Its errors are
// natsconf.ErrNotFound, where no such try is known, and natsconf.ErrUnavailable.
func (st *Store) LastNotSent(ctx context.Context, s Session) (Event, error) {
	m, err := st.conn.Last(ctx, natsconf.StreamEvents, eventSubject(string(EventNotSent), s.ID))
	if err != nil {
		return Event{}, fmt.Errorf("read the last try of session %s: %w", s.ID, err)
	}
	e, ok, err := st.decodeEvent(ctx, s, EventNotSent, m.Data)
	if err == nil && !ok {
		err = natsconf.ErrNotFound
	}
	if err != nil {
		return Event{}, fmt.Errorf("read the last try of session %s: %w", s.ID, err)
	}
	return e, nil
}

// decodeEvent reads an event and opens what is sealed in it; not ok for one that this build cannot read. The
// error is natsconf.ErrUnavailable.
func (st *Store) decodeEvent(ctx context.Context, s Session, name EventName, data []byte) (e Event, ok bool,
	err error) {
	var r eventRecord
	if decodeRecord(data, &r, &r.Version, eventVersions) != nil {
		return Event{}, false, nil //nolint:nilerr // a timeline with a gap is better than none
	}
	if len(r.Sealed) > 0 {
		d, err := st.openDetails(ctx, s.ID, s.key, string(r.Sealed))
		if err != nil {
			return Event{}, false, err
		}
		r.Detail, r.Address = d.Detail, d.Address
	}
	r.Name, r.Session = name, s.ID
	return r.Event, true, nil
}
