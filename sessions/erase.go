package sessions

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
)

// erasedFor is how long it is remembered that a session's user was erased: a day longer than results can be
// kept at all (90 days).
const erasedFor = 91 * 24 * time.Hour

// Person is a user as an integrator names them.
type Person struct {
	Account        string
	PlatformUserID string
	Platform       string // empty: any
	GuildID        string // empty: any
	// the names under which identities may stand for them (IdentityBinding.User), where these are known
	BindingUsers   []string
	BindingUsersOf func(Session) []string
}

// Erasure is what was found of a person, and erased.
type Erasure struct {
	Sessions int // records
	Outcomes int // of these, sessions that have an outcome
	// sessions that are not at their end, and stay: they can be completed, or are to be delivered
	Open     int
	Bindings int // identities that stood for the person
	// Clear is how many of Sessions builds have stored that did not seal them under keys of their own: they
	// stay in clear text in the servers' files, and their outcomes in the store, where nothing but this
	// reads them, until the last leaves by its age: Until.
	Clear int
	Until time.Time // zero where there is none
}

// erasedRecord is stored for each session whose user was erased.
type erasedRecord struct {
	Version int       `json:"v"`
	At      time.Time `json:"at"`
	// Account is set until everything is erased, so that the next erasure, of whomever, finishes one that
	// was interrupted. Page and Slot are where the session's key is.
	Account string `json:"account,omitempty"`
	Page    string `json:"page,omitempty"`
	Slot    int    `json:"slot,omitzero"`
}

const erasedEntry = "erased."

// errErased is returned for what would be opened by a key that was destroyed. To callers it is what is not
// there.
var errErased = fmt.Errorf("its user was erased: %w: %w", ErrNotFound, natsconf.ErrNotFound)

func erasedSubject(id ID) string {
	return natsconf.BucketSubject(natsconf.BucketStore, erasedEntry+string(id))
}

// ErasedBy returns the session that a message of natsconf.BucketStore is about, by its subject, if that says
// that its user was erased.
func ErasedBy(subject string) (id ID, ok bool) {
	text, ok := strings.CutPrefix(subject, erasedSubject(""))
	return ID(text), ok && text != ""
}

// erased reports whether a session's user was erased; of "*", whether any session's was.
func (st *Store) erased(ctx context.Context, id ID) (bool, error) {
	_, err := st.conn.Last(ctx, natsconf.BucketStream(natsconf.BucketStore), erasedSubject(id))
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, natsconf.ErrNotFound),
		errors.Is(err, jetstream.ErrStreamNotFound): // the store of an older build
		return false, nil
	default:
		return false, fmt.Errorf("read whether session %s is erased: %w", id, err)
	}
}

// Erased returns all sessions whose user was erased and of whom facts may be kept. Its error is
// natsconf.ErrUnavailable.
func (st *Store) Erased(ctx context.Context) (map[ID]bool, error) {
	notes, err := st.erasures(ctx)
	erased := make(map[ID]bool, len(notes))
	for id := range notes {
		erased[id] = true
	}
	return erased, err
}

// erasures reads what is noted of erased sessions. Of a note that cannot be read only the session is known.
func (st *Store) erasures(ctx context.Context) (map[ID]erasedRecord, error) {
	msgs, err := st.conn.Newest(ctx, natsconf.BucketStream(natsconf.BucketStore), erasedSubject("*"))
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, err
	}
	notes := make(map[ID]erasedRecord, len(msgs))
	for _, m := range msgs {
		var r erasedRecord
		if decodeRecord(m.Data(), &r, &r.Version, recordVersions) != nil {
			r = erasedRecord{}
		}
		notes[ID(m.Subject()[strings.LastIndexByte(m.Subject(), '.')+1:])] = r
	}
	return notes, nil
}

// Erase erases what is stored of a person: the keys under which their sessions' personal parts are sealed,
// in records and facts, so that nobody opens these any more, here or in a later copy; the records; their
// events; and their identity bindings. The facts themselves stay until their age, without a name: a
// write-once stream that loses a fact accepts a second one. A session is found by its record, and by its
// outcome where the record has aged out: that is up to Lifetime older.
//
// A session that is not at its end stays, and is counted: its outcome would be lost, or sent twice. With dry
// nothing is changed. Its errors are natsconf's; a repeat is harmless, and finishes what was interrupted.
func (st *Store) Erase(ctx context.Context, p Person, dry bool) (Erasure, error) {
	if err := st.resumeErasures(ctx, dry); err != nil {
		return Erasure{}, err
	}
	found, err := st.sessionsOf(ctx, p)
	if err != nil {
		return Erasure{}, err
	}
	var e Erasure
	var ended []Session
	names, open := map[string]bool{}, map[string]bool{}
	for _, name := range p.BindingUsers {
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
		for _, name := range p.BindingUsersOf(s) {
			if sum := st.identityHash.Sum(name); over {
				names[sum] = true
			} else {
				open[sum] = true
			}
		}
	}
	// a hold may rest on an open session
	maps.DeleteFunc(names, func(name string, _ bool) bool { return open[name] })
	// Before the records, which alone may tell the names.
	if err := st.eraseBindings(ctx, names, dry, &e); err != nil || dry {
		return e, err
	}
	for _, s := range ended {
		if err := st.eraseSession(ctx, s.ID, erasedRecord{
			Account: s.Account, Page: s.key.page, Slot: s.key.slot,
		}); err != nil {
			return e, err
		}
	}
	return e, nil
}

// matches reports whether a session is the person's.
func (p Person) matches(s Session) bool {
	return s.Account == p.Account && s.PlatformUserID == p.PlatformUserID &&
		(p.Platform == "" || p.Platform == s.Platform) && (p.GuildID == "" || p.GuildID == s.GuildID)
}

// sessionsOf finds a person's sessions. What cannot be read is nobody's; a newer build's ends the search: it
// may be theirs, and is for that one to erase.
func (st *Store) sessionsOf(ctx context.Context, p Person) (found []Session, err error) {
	recorded := map[ID]Session{}
	records := natsconf.BucketStream(natsconf.BucketSessions)
	err = st.eachOf(ctx, p, records, recordSubject(p.Account, "*"), func(id ID, s *Session, err error) error {
		switch {
		case err != nil:
			return err
		case s == nil: // a server that is behind its leader delivers what was deleted, and then the deletion
			delete(recorded, id)
		default:
			recorded[id] = *s
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, s := range recorded {
		found = append(found, s)
	}
	// Those whose record was deleted meanwhile by another erasure are among these.
	erased, err := st.Erased(ctx)
	if err != nil {
		return nil, err
	}
	err = st.eachOf(ctx, p, natsconf.StreamCompletions, completionSubject("*"),
		func(id ID, s *Session, err error) error {
			if err != nil {
				return st.unlessRecorded(ctx, id, err)
			}
			if _, ok := recorded[id]; !ok && !erased[id] && s != nil {
				found = append(found, *s)
			}
			return nil
		})
	return found, err
}

// unlessRecorded returns the error of a newer build's outcome, unless its session has a record, which has
// been examined.
func (st *Store) unlessRecorded(ctx context.Context, id ID, err error) error {
	if _, rerr := st.conn.Last(ctx, natsconf.BucketStream(natsconf.BucketSessions),
		anyRecordSubject(id)); !errors.Is(rerr, natsconf.ErrNotFound) {
		return rerr
	}
	return err
}

// eachOf reads what is stored on the subjects that match, records, or outcomes, which hold the same, and
// returns a person's sessions. A newer build's is passed as an error, and nil where the record was deleted.
func (st *Store) eachOf(ctx context.Context, p Person, stream, subject string,
	do func(ID, *Session, error) error) error {
	return st.eachRecord(ctx, stream, subject, func(id ID, r *record, err error) error {
		s, mine, err := st.sessionIfOf(ctx, p, id, r, err)
		if mine || err != nil {
			err = do(id, s, err)
		}
		if err != nil {
			return fmt.Errorf("nothing was erased: %w", err)
		}
		return nil
	})
}

// sessionIfOf reports whether a record, or an outcome, is of a person; nil: it was deleted.
func (st *Store) sessionIfOf(ctx context.Context, p Person, id ID, r *record, err error) (s *Session,
	mine bool, _ error) {
	switch {
	case err != nil:
		return nil, false, err
	case r == nil:
		return nil, true, nil
	case r.Account != p.Account:
		return nil, false, nil // no need to open it
	}
	opened := r.sealedSession(id)
	if opened.key != (keyRef{}) {
		opened, err = st.openRecord(ctx, id, *r)
	}
	if errors.Is(err, ErrUnreadable) || errors.Is(err, errErased) || opened.Lost {
		return nil, false, nil
	}
	return &opened, err == nil && p.matches(opened), err
}

// isErasable reports whether a session can be erased, and counts it.
func (st *Store) isErasable(ctx context.Context, s Session, e *Erasure) (bool, error) {
	v, err := st.view(ctx, s)
	if err != nil {
		return false, err
	}
	// Within its lifetime an idempotency key may lead to it, and a page be open.
	if st.now().Before(s.ExpiresAt) || v.Delivery.State == DeliveryDue ||
		v.Delivery.State == DeliveryClaimed {
		e.Open++
		return false, nil
	}
	e.Sessions++
	ended := !v.CompletedAt.IsZero() || v.Reason == UnreadableReason
	if ended {
		e.Outcomes++
	}
	if s.key != (keyRef{}) {
		return true, nil
	}
	e.Clear++
	if ended {
		return true, st.keptUntil(ctx, natsconf.StreamCompletions, completionSubject(s.ID), e)
	}
	return true, st.keptUntil(ctx, natsconf.BucketStream(natsconf.BucketSessions),
		recordSubject(s.Account, s.ID), e)
}

// resumeErasures finishes erasures that were interrupted. By then nothing else may lead to such a session.
func (st *Store) resumeErasures(ctx context.Context, dry bool) error {
	notes, err := st.erasures(ctx)
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

// eraseSession erases one session. Once the first note is stored nothing of it is read; the second marks the
// erasure as finished.
func (st *Store) eraseSession(ctx context.Context, id ID, note erasedRecord) error {
	if err := st.noteErased(ctx, id, note); err != nil {
		return err
	}
	if err := st.conn.Destroy(ctx, natsconf.StreamEvents, eventSubject("*", id), 0); err != nil {
		return err
	}
	if ref := (keyRef{note.Page, note.Slot}); ref != (keyRef{}) {
		if err := st.keys.destroy(ctx, ref); err != nil {
			return err
		}
	}
	if err := st.deleteRecord(ctx, recordSubject(note.Account, id)); err != nil {
		return fmt.Errorf("erase session %s: %w", id, err)
	}
	return st.noteErased(ctx, id, erasedRecord{})
}

// deleteRecord deletes a session's record, where there is one.
func (st *Store) deleteRecord(ctx context.Context, subject string) error {
	m, err := st.conn.Last(ctx, natsconf.BucketStream(natsconf.BucketSessions), subject)
	if errors.Is(err, natsconf.ErrNotFound) || err == nil && natsconf.IsMarker(m.Header) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := st.conn.PublishOne(ctx, natsconf.BucketStream(natsconf.BucketSessions),
		purgeMarker(subject)); err != nil {
		return natsconf.Kind(err)
	}
	return nil
}

// noteErased stores that nothing of a session is to be read.
func (st *Store) noteErased(ctx context.Context, id ID, r erasedRecord) error {
	r.Version, r.At = recordVersions.newest, st.instant()
	data, err := encodeRecord(r)
	if err != nil {
		return fmt.Errorf("encode erasure: %w", err)
	}
	note := &nats.Msg{
		Subject: erasedSubject(id), Data: data, Header: nats.Header{
			jetstream.MsgTTLHeader: {erasedFor.String()},
		},
	}
	if err := st.conn.PublishOne(ctx, natsconf.BucketStream(natsconf.BucketStore), note); err != nil {
		return fmt.Errorf("erase session %s: %w", id, natsconf.Kind(err))
	}
	return nil
}

// purgeMarker returns a message that deletes what is stored on a subject of a bucket.
func purgeMarker(subject string) *nats.Msg {
	return &nats.Msg{
		Subject: subject, Header: nats.Header{
			"KV-Operation": {"PURGE"}, jetstream.MsgRollup: {jetstream.MsgRollupSubject},
		},
	}
}

// keptUntil notes when what is on a subject leaves the store by its age.
func (st *Store) keptUntil(ctx context.Context, stream, subject string, e *Erasure) error {
	m, err := st.conn.Last(ctx, stream, subject)
	if errors.Is(err, natsconf.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	until, err := st.conn.KeptUntil(ctx, stream, m)
	if err != nil {
		return err
	}
	if until.After(e.Until) {
		e.Until = until
	}
	return nil
}
