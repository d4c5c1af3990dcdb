package sessions

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"verifyd/natsconf"
)

// maxEvents bounds the events of one session that are read. An honest session has a handful; a user who presses "Continue" all the
// time has one for each press.
const maxEvents = 512

// EventName is the middle of an event's subject: one word of [a-z_].
type EventName string

// The events of a session; whoever emits another one adds it here.
const (
	EventSignIn  EventName = "sign_in"  // the user pressed Continue and was sent to Network
	EventTrouble EventName = "trouble"  // Network failed to give a verdict: Detail; the user may try again
	EventNotSent EventName = "not_sent" // a try of Attempt failed before the claim: Class, Detail, Timing, Next
)

// Event is something that happened to a session and that no promise depends on. It is for people: it may be missing after a crash.
type Event struct {
	Name    EventName `json:"-"`
	Session ID        `json:"-"`
	At      time.Time `json:"at"` // now where zero

	// What follows is set as the name asks for it.
	Network string        `json:"network,omitempty"` // id of the identity network
	Attempt int           `json:"attempt,omitempty"`
	Class   Class         `json:"class,omitempty"`
	Detail  string        `json:"detail,omitempty"` // one sentence for people, without URL or secrets
	Address string        `json:"address,omitempty"`
	Timing  Timing        `json:"timing,omitzero"`
	Next    time.Duration `json:"next,omitempty"` // the pause until the next try; zero where there is none
}

// eventRecord is an Event as it is stored.
type eventRecord struct {
	Version int `json:"v"`
	Event
}

// Emit puts an event on the session's timeline. It waits for nothing and promises nothing; an event whose name is not one word is
// dropped.
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
	data, err := json.Marshal(eventRecord{Version: recordVersion, Event: e})
	return data, err == nil
}

// EntryKind says what an Entry tells.
type EntryKind string

// The kinds of an entry, in the order in which one instant's entries stand.
const (
	EntryCreated   EntryKind = "created"   // the session was started
	EntryEvent     EntryKind = "event"     // Event
	EntryExpired   EntryKind = "expired"   // the session's lifetime ended before anybody completed it
	EntryCompleted EntryKind = "completed" // the view's outcome was written
	EntryAsked     EntryKind = "asked"     // Resend: somebody asked for one more attempt
	EntryClaimed   EntryKind = "claimed"   // Claim
	EntryResult    EntryKind = "result"    // Result
)

// Entry is one line of a timeline, as data; whoever shows it finds the words.
type Entry struct {
	At     time.Time
	Kind   EntryKind
	Event  *Event  // of EntryEvent
	Resend *Resend // of EntryAsked
	Claim  *Claim  // of EntryClaimed
	Result *Result // of EntryResult

	order time.Time // At, but never before what caused it: machines' clocks differ
}

// Timeline gives a session and everything that is known of its course, oldest first. An effect never stands before its cause,
// though its instant, taken by another machine's clock, may be earlier. The errors are Read's.
func (st *Store) Timeline(ctx context.Context, id ID) (View, []Entry, error) {
	v, err := st.Read(ctx, id)
	if err != nil {
		return View{}, nil, err
	}
	events, err := st.events(ctx, id)
	if err != nil {
		return View{}, nil, err
	}
	asked, err := st.resends(ctx, v)
	if err != nil {
		return View{}, nil, err
	}
	entries := v.entries(asked)
	for i := range events {
		e := &events[i]
		after := v.CreatedAt
		if e.Name == EventNotSent {
			after = v.CompletedAt
		}
		order := later(e.At, after)
		if e.Name == EventFinished && !v.CompletedAt.IsZero() {
			order = v.CompletedAt // with the outcome that it tells of, though the callback may be on its way by then
		}
		entries = append(entries, Entry{At: e.At, Kind: EntryEvent, Event: e, order: order})
	}
	slices.SortStableFunc(entries, func(a, b Entry) int { return cmp.Or(a.order.Compare(b.order), cmp.Compare(a.rank(), b.rank())) })
	return v, entries, nil
}

// resends reads who asked for a view's attempts, by number.
func (st *Store) resends(ctx context.Context, v View) (map[int]*Resend, error) {
	asked := map[int]*Resend{}
	for n := 2; n <= len(v.Delivery.Attempts)+1; n++ {
		r, err := st.Asked(ctx, v.ID, n)
		if err != nil {
			return nil, err
		}
		if r != nil {
			asked[n] = r
		}
	}
	return asked, nil
}

// entries gives the facts of a view in the order of cause and effect.
func (v View) entries(asked map[int]*Resend) []Entry {
	entries := []Entry{{At: v.CreatedAt, Kind: EntryCreated}}
	if v.State == Expired {
		entries = append(entries, Entry{At: v.ExpiresAt, Kind: EntryExpired})
	}
	if !v.CompletedAt.IsZero() {
		entries = append(entries, Entry{At: v.CompletedAt, Kind: EntryCompleted})
	}
	ask := func(n int) {
		if r := asked[n]; r != nil {
			entries = append(entries, Entry{At: r.At, Kind: EntryAsked, Resend: r})
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

// rank orders the entries of one instant. Facts of one rank keep the order that they came in, which is that of cause and effect.
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

// events reads a session's events from the leader. What a newer build wrote is left out: a timeline
// with a gap is better than none.
func (st *Store) events(ctx context.Context, id ID) ([]Event, error) {
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
		r := eventRecord{}
		name := EventName(strings.Split(m.Subject, ".")[1])
		if json.Unmarshal(m.Data, &r) != nil || r.Version != recordVersion {
			continue
		}
		r.Name, r.Session = name, id
		events = append(events, r.Event)
	}
	return events, nil
}
