// Package erasure erases what is stored of a user.
package erasure

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/records"
)

// erasedFor is how long it is remembered that a session's user was erased: a day longer than facts can be
// kept at all, 90 days, and as long again in a store that they were brought to.
const erasedFor = 181 * 24 * time.Hour

// Person is a user as an integrator names them.
type Person struct {
	Account        string
	PlatformUserID string
	Platform       string // empty: any
	GuildID        string // empty: any
	// the names under which identities may stand for them (IdentityHold.User), if these are known
	HoldUsers   []string
	HoldUsersOf func(sessions.Session) []string
}

// Erasure is what was found of a person, and erased.
type Erasure struct {
	Sessions int // records
	Outcomes int // of these, sessions that have an outcome
	// sessions that have not ended, and stay: they can be completed, or are to be delivered
	Open       int
	Identities int // identities that stood for the person
	// Clear is how many of Sessions were stored by builds that did not seal them under keys of their own.
	// They stay in clear text in the servers' files, and their outcomes in the store, where only this reads
	// them, until the last leaves by its age: Until.
	Clear int
	Until time.Time // zero if there is none
}

// ErasedBy returns the session that a message of topology.BucketStore is about, by its subject, if that means
// that its user was erased.
func ErasedBy(subject string) (id sessions.ID, ok bool) {
	text, ok := strings.CutPrefix(subject, records.ErasedSubject(""))
	return sessions.ID(text), ok && text != ""
}

// Eraser erases what is stored of users.
type Eraser struct {
	*records.Reader

	identityHash *secretbox.Hash // of the names under which identities stand for users
}

// New returns an eraser of what a reader reads.
func New(r *records.Reader, identities *secretbox.Hash) *Eraser { return &Eraser{r, identities} }

// Erase erases what is stored of a person: the keys under which their sessions' personal parts are sealed, in
// records and facts, so that nobody can open these any more, here or in a later copy; the records; their
// events; and their identity holds. The facts themselves stay until their age, without a name: a
// write-once stream that loses a fact accepts a second one. A session is found by its record, and by its
// outcome if the record, which is up to Lifetime older, has aged out.
//
// A session that has not ended stays, and is counted: its outcome would be lost, or sent twice. With dry
// nothing is changed. Its errors are natsconf's; a repeat is harmless, and finishes what was interrupted.
func (st *Eraser) Erase(ctx context.Context, p Person, dry bool) (Erasure, error) {
	if err := st.resumeErasures(ctx, dry); err != nil {
		return Erasure{}, err
	}
	found, err := st.sessionsOf(ctx, p)
	if err != nil {
		return Erasure{}, err
	}
	var e Erasure
	var ended []sessions.Session
	names, open := map[string]bool{}, map[string]bool{}
	for _, name := range p.HoldUsers {
		names[st.identityHash.Sum(name)] = true
	}
	for _, s := range found {
		over, err := st.isErasable(ctx, s, &e)
		if err != nil {
			return Erasure{}, err
		}
		if over {
			ended = append(ended, s)
		}
		for _, name := range p.HoldUsersOf(s) {
			if sum := st.identityHash.Sum(name); over {
				names[sum] = true
			} else {
				open[sum] = true
			}
		}
	}
	// a hold may rest on an open session
	maps.DeleteFunc(names, func(name string, _ bool) bool { return open[name] })
	if dry {
		holds, _, err := st.holdsOf(ctx, names, 1)
		e.Identities = len(holds)
		return e, err
	}
	// Before the records, which alone may hold the names.
	next, err := st.eraseHolds(ctx, names, 1, &e)
	if err != nil {
		return e, err
	}
	for _, s := range ended {
		if err := st.eraseSession(ctx, s.ID, records.ErasedRecord{
			Account: s.Account, Page: s.SealedUnder.Page, Slot: s.SealedUnder.Slot,
		}); err != nil {
			return e, err
		}
	}
	// A sign-in that began before its session ended may have stored one meanwhile. From now on it reads that
	// the session is erased (IdentityHolds).
	_, err = st.eraseHolds(ctx, names, next, &e)
	return e, err
}

// isErasable reports whether a session can be erased, and counts it.
func (st *Eraser) isErasable(ctx context.Context, s sessions.Session, e *Erasure) (bool, error) {
	v, err := st.View(ctx, s)
	if errors.Is(err, records.ErrErased) {
		return false, nil // by another erasure, meanwhile
	}
	if err != nil {
		return false, err
	}
	ended := !v.CompletedAt.IsZero() || v.Reason == sessions.UnreadableReason
	// An outcome that cannot be read is not read first by processes that remember the record.
	if v.CompletedAt.IsZero() && st.Now().Before(s.ExpiresAt) || v.Delivery.State == facts.DeliveryDue ||
		v.Delivery.State == facts.DeliveryClaimed {
		e.Open++
		return false, nil
	}
	e.Sessions++
	if ended {
		e.Outcomes++
	}
	if s.SealedUnder != (sessions.KeyRef{}) {
		return true, nil
	}
	e.Clear++
	// An outcome that another store brought is kept for longer than it is read.
	record := records.RecordSubject(s.Account, s.ID)
	return true, errors.Join(
		st.keptUntil(ctx, topology.StreamCompletions, records.CompletionSubject(s.ID), e),
		st.keptUntil(ctx, topology.BucketStream(topology.BucketSessions), record, e))
}

// resumeErasures finishes erasures that were interrupted. By then nothing else may lead to such a session.
func (st *Eraser) resumeErasures(ctx context.Context, dry bool) error {
	notes, err := st.ErasedRecords(ctx)
	if err != nil || dry {
		return err
	}
	for id, note := range notes {
		if note.Account == "" {
			continue
		}
		if err := st.eraseSession(ctx, id, note); err != nil {
			return err
		}
	}
	return nil
}

// eraseSession erases one session. Once the first record is stored nothing of it is read; the second marks
// the erasure as finished.
func (st *Eraser) eraseSession(ctx context.Context, id sessions.ID, note records.ErasedRecord) error {
	if err := st.noteErased(ctx, id, note); err != nil {
		return err
	}
	if err := st.Conn.Destroy(ctx, topology.StreamEvents, records.EventSubject("*", id), 0); err != nil {
		return err
	}
	if ref := (sessions.KeyRef{Page: note.Page, Slot: note.Slot}); ref != (sessions.KeyRef{}) {
		if err := st.DestroyKey(ctx, ref); err != nil {
			return err
		}
	}
	if err := st.deleteRecord(ctx, records.RecordSubject(note.Account, id)); err != nil {
		return fmt.Errorf("erase session %s: %w", id, err)
	}
	return st.noteErased(ctx, id, records.ErasedRecord{})
}

// deleteRecord deletes a session's record, if there is one.
func (st *Eraser) deleteRecord(ctx context.Context, subject string) error {
	m, err := st.Conn.Last(ctx, topology.BucketStream(topology.BucketSessions), subject)
	if errors.Is(err, natsconf.ErrNotFound) || err == nil && natsconf.IsMarker(m.Header) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := st.Conn.PublishOne(ctx, topology.BucketStream(topology.BucketSessions),
		natsconf.Marker(subject)); err != nil {
		return natsconf.Kind(err)
	}
	return nil
}

// noteErased stores that nothing of a session may be read.
func (st *Eraser) noteErased(ctx context.Context, id sessions.ID, r records.ErasedRecord) error {
	r.Version, r.At = records.RecordVersions.Newest, st.Instant()
	data, err := records.EncodeRecord(r)
	if err != nil {
		return fmt.Errorf("encode erasure: %w", err)
	}
	note := &nats.Msg{
		Subject: records.ErasedSubject(id), Data: data, Header: nats.Header{
			jetstream.MsgTTLHeader: {erasedFor.String()},
		},
	}
	if err := st.Conn.PublishOne(ctx, topology.BucketStream(topology.BucketStore), note); err != nil {
		return fmt.Errorf("erase session %s: %w", id, natsconf.Kind(err))
	}
	return nil
}

// keptUntil records when the message on a subject leaves the store by its age.
func (st *Eraser) keptUntil(ctx context.Context, stream, subject string, e *Erasure) error {
	m, err := st.Conn.Last(ctx, stream, subject)
	if errors.Is(err, natsconf.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	until, err := st.Conn.KeptUntil(ctx, stream, m)
	if err != nil {
		return err
	}
	if until.After(e.Until) {
		e.Until = until
	}
	return nil
}
