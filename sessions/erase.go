package sessions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
)

// erasedFor is how long it is remembered that a session's user was erased: a day longer than results can be kept at all (90 days).
const erasedFor = 91 * 24 * time.Hour

// Person is a user as an integrator names them.
type Person struct {
	Account        string
	PlatformUserID string
	Platform       string   // empty: any
	GuildID        string   // empty: any
	Holds          []string // the names under which identities may stand for them (Hold.By), where these are known
	HoldsOf        func(Session) []string
}

// Erasure is what was found of a person, and erased.
type Erasure struct {
	Sessions int // records
	Outcomes int // of these, sessions that have an outcome
	Open     int // sessions that are not at their end, and stay: they can be completed, or are to be delivered
	Holds    int // identities that stood for the person
	// Until is when the last of the outcomes leaves the store by its age. Until then nothing reads it; zero where there is none.
	Until time.Time
}

// erasedRecord is stored for each session whose user was erased.
type erasedRecord struct {
	Version int       `json:"v"`
	At      time.Time `json:"at"`
}

const erasedEntry = "erased."

func erasedSubject(id ID) string {
	return natsconf.BucketSubject(natsconf.BucketStore, erasedEntry+string(id))
}

// erased says whether a session's user was erased; of "*", whether any session's was.
func (st *Store) erased(ctx context.Context, id ID) (bool, error) {
	_, err := st.conn.Last(ctx, natsconf.BucketStream(natsconf.BucketStore), erasedSubject(id))
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, natsconf.ErrNotFound), errors.Is(err, jetstream.ErrStreamNotFound): // the store of an older build
		return false, nil
	default:
		return false, fmt.Errorf("read whether session %s is erased: %w", id, err)
	}
}

// Erased gives all sessions whose user was erased and of whom facts may be kept. Its error is natsconf.ErrUnavailable.
func (st *Store) Erased(ctx context.Context) (map[ID]bool, error) {
	msgs, err := st.conn.Newest(ctx, natsconf.BucketStream(natsconf.BucketStore), erasedSubject("*"))
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, err
	}
	erased := make(map[ID]bool, len(msgs))
	for _, m := range msgs {
		erased[ID(m.Subject()[strings.LastIndexByte(m.Subject(), '.')+1:])] = true
	}
	return erased, nil
}

// Erase takes away what is stored of a person: the records of their sessions, their events, and the identities that stand for them. What
// they were told, the facts, cannot be taken away before their age: a write-once stream that lets go of one fact lets a second one be
// written. From now on nothing reads them, and no backup and no move brings them on. A session is found by its record, and by its outcome
// where the record has aged out: that is up to Lifetime older.
//
// A session that is not at its end stays, and is counted: its outcome would be lost, or sent twice. With dry nothing is changed. Its
// errors are natsconf's; a repeat is harmless.
func (st *Store) Erase(ctx context.Context, p Person, dry bool) (Erasure, error) {
	found, err := st.sessionsOf(ctx, p)
	if err != nil {
		return Erasure{}, err
	}
	var e Erasure
	var ended []foundSession
	names, open := map[string]bool{}, map[string]bool{}
	for _, name := range p.Holds {
		names[st.hash.Sum(name)] = true
	}
	for _, s := range found {
		over, err := st.atEnd(ctx, s.Session, &e)
		if err != nil {
			return Erasure{}, err
		}
		if over {
			ended = append(ended, s)
		}
		for _, name := range p.HoldsOf(s.Session) {
			if sum := st.hash.Sum(name); over {
				names[sum] = true
			} else {
				open[sum] = true
			}
		}
	}
	maps.DeleteFunc(names, func(name string, _ bool) bool { return open[name] }) // a hold may rest on an open session
	// Before the records, which alone may tell the names.
	if err := st.eraseHolds(ctx, names, dry, &e); err != nil || dry {
		return e, err
	}
	for _, s := range ended {
		if err := st.eraseSession(ctx, s); err != nil {
			return e, err
		}
	}
	return e, nil
}

// foundSession is a session of the person who is erased.
type foundSession struct {
	Session

	recorded bool // by its record; otherwise by its outcome alone
}

// is says whether a session is the person's.
func (p Person) is(r record) bool {
	return r.Account == p.Account && r.PlatformUserID == p.PlatformUserID && (p.Platform == "" || p.Platform == r.Platform) && (p.GuildID == "" || p.GuildID == r.GuildID)
}

// sessionsOf finds a person's sessions. What cannot be read is nobody's; a newer build's ends the search: it may be theirs, and is for that
// one to erase. Callback URLs stay sealed.
func (st *Store) sessionsOf(ctx context.Context, p Person) (found []foundSession, err error) {
	recorded := map[ID]Session{}
	err = st.eachRecord(ctx, natsconf.BucketStream(natsconf.BucketSessions), recordSubject(p.Account, "*"), func(id ID, r *record, err error) error {
		switch {
		case err != nil:
			return err
		case r == nil: // a server that is behind its leader gives what was taken away, and then that it was
			delete(recorded, id)
		case p.is(*r):
			recorded[id] = r.sealedSession(id)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, s := range recorded {
		found = append(found, foundSession{s, true})
	}
	// Whose record was taken away meanwhile by another erasure is among these.
	erased, err := st.Erased(ctx)
	if err != nil {
		return nil, err
	}
	err = st.eachRecord(ctx, natsconf.StreamCompletions, completionSubject("*"), func(id ID, r *record, err error) error {
		if err != nil {
			return st.unlessRecorded(ctx, id, err)
		}
		if _, ok := recorded[id]; !ok && !erased[id] && r != nil && p.is(*r) {
			found = append(found, foundSession{r.sealedSession(id), false})
		}
		return nil
	})
	return found, err
}

// unlessRecorded gives the error of a newer build's outcome, unless its session has a record, which has been judged.
func (st *Store) unlessRecorded(ctx context.Context, id ID, err error) error {
	if _, rerr := st.conn.Last(ctx, natsconf.BucketStream(natsconf.BucketSessions), anyRecordSubject(id)); !errors.Is(rerr, natsconf.ErrNotFound) {
		return rerr
	}
	return err
}

// eachRecord reads what stands on the subjects that match: records, or outcomes, which hold the same. A newer build's is given as an error,
// and nil where the record was taken away.
func (st *Store) eachRecord(ctx context.Context, stream, subject string, do func(ID, *record, error) error) error {
	_, last, err := st.conn.Bounds(ctx, stream)
	if err != nil {
		return err
	}
	return st.conn.Pages(ctx, stream, subject, 1, last, func(msgs []jetstream.Msg) error {
		for _, m := range msgs {
			id, err := ParseID(m.Subject()[strings.LastIndexByte(m.Subject(), '.')+1:])
			if err != nil {
				continue
			}
			r := &record{}
			if natsconf.IsMarker(m.Headers()) {
				r = nil
			} else if err = decodeOf(id, m.Data(), r, &r.Version); errors.Is(err, ErrUnreadable) {
				continue
			}
			if err := do(id, r, err); err != nil {
				return fmt.Errorf("nothing was erased: %w", err)
			}
		}
		return nil
	})
}

// atEnd says whether a session can be erased, and counts it.
func (st *Store) atEnd(ctx context.Context, s Session, e *Erasure) (bool, error) {
	v, err := st.view(ctx, s)
	if err != nil {
		return false, err
	}
	// Within its lifetime an idempotency key may lead to it, and a page be open.
	if st.now().Before(s.ExpiresAt) || v.Delivery.State == DeliveryDue || v.Delivery.State == DeliveryClaimed {
		e.Open++
		return false, nil
	}
	e.Sessions++
	if !v.CompletedAt.IsZero() || v.Reason == UnreadableReason {
		e.Outcomes++
		if err := st.keptUntil(ctx, s.ID, e); err != nil {
			return false, err
		}
	}
	return true, nil
}

// eraseSession ends with what a repeat finds the session by, so that a crash leaves no half: the record, or where that is gone the word
// that nothing of it is to be read, which otherwise comes first.
func (st *Store) eraseSession(ctx context.Context, s foundSession) error {
	if s.recorded {
		if err := st.noteErased(ctx, s.ID); err != nil {
			return err
		}
	}
	if err := st.conn.Purge(ctx, natsconf.StreamEvents, eventSubject("*", s.ID)); err != nil {
		return err
	}
	if !s.recorded {
		return st.noteErased(ctx, s.ID)
	}
	if _, err := st.conn.JS.PublishMsg(ctx, marker(recordSubject(s.Account, s.ID))); err != nil {
		return fmt.Errorf("erase session %s: %w", s.ID, natsconf.Kind(err))
	}
	return nil
}

// noteErased stores that nothing of a session is to be read.
func (st *Store) noteErased(ctx context.Context, id ID) error {
	data, err := json.Marshal(erasedRecord{Version: recordVersion, At: st.instant()})
	if err != nil {
		return fmt.Errorf("encode erasure: %w", err)
	}
	note := &nats.Msg{Subject: erasedSubject(id), Data: data, Header: nats.Header{jetstream.MsgTTLHeader: {erasedFor.String()}}}
	if _, err := st.conn.JS.PublishMsg(ctx, note); err != nil {
		return fmt.Errorf("erase session %s: %w", id, natsconf.Kind(err))
	}
	return nil
}

// marker makes a message that takes away what stands on a subject of a bucket.
func marker(subject string) *nats.Msg {
	return &nats.Msg{Subject: subject, Header: nats.Header{"KV-Operation": {"PURGE"}, jetstream.MsgRollup: {jetstream.MsgRollupSubject}}}
}

// keptUntil notes when the outcome of a session leaves the store by its age.
func (st *Store) keptUntil(ctx context.Context, id ID, e *Erasure) error {
	m, err := st.conn.Last(ctx, natsconf.StreamCompletions, completionSubject(id))
	if errors.Is(err, natsconf.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	until, err := st.conn.KeptUntil(ctx, natsconf.StreamCompletions, m)
	if err != nil {
		return err
	}
	if until.After(e.Until) {
		e.Until = until
	}
	return nil
}

func (st *Store) eraseHolds(ctx context.Context, names map[string]bool, dry bool, e *Erasure) error {
	if len(names) == 0 {
		return nil
	}
	stream := natsconf.BucketStream(natsconf.BucketIdentities)
	_, last, err := st.conn.Bounds(ctx, stream)
	if err != nil {
		return err
	}
	var holds []*nats.Msg
	err = st.conn.Pages(ctx, stream, ">", 1, last, func(msgs []jetstream.Msg) error {
		for _, m := range msgs {
			if theirs, err := isHoldOf(m, names); err != nil {
				return err
			} else if !theirs {
				continue
			}
			meta, err := m.Metadata()
			if err != nil {
				return fmt.Errorf("read a hold: %w", err)
			}
			end := marker(m.Subject())
			end.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(meta.Sequence.Stream, 10))
			holds = append(holds, end)
		}
		return nil
	})
	if err != nil {
		return err
	}
	e.Holds = len(holds)
	if dry {
		return nil
	}
	for _, end := range holds {
		_, err := st.conn.JS.PublishMsg(ctx, end, jetstream.WithRetryAttempts(0))
		if err == nil {
			continue
		}
		if err = natsconf.Kind(err); !errors.Is(err, natsconf.ErrConflict) {
			return fmt.Errorf("erase a hold: %w", err)
		}
		e.Holds-- // it was taken meanwhile by somebody who may: it is theirs
	}
	return nil
}

// isHoldOf says whether a hold is of who has one of these names. A newer build's may be: it is an error.
func isHoldOf(m jetstream.Msg, names map[string]bool) (bool, error) {
	if natsconf.IsMarker(m.Headers()) {
		return false, nil
	}
	var r holdRecord
	err := decode(m.Data(), &r, &r.Version)
	if errors.Is(err, ErrNewer) {
		return false, fmt.Errorf("nothing was erased: a newer build holds an identity, for this user or somebody else; erasing waits for the newer binary: %w", err)
	}
	return err == nil && names[r.By], nil
}
