package records

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
)

// ErasedRecord is stored for each session whose user was erased.
type ErasedRecord struct {
	Version int       `json:"v"`
	At      time.Time `json:"at"`
	// Account is set until everything is erased, so that the next erasure, of any user, finishes one that was
	// interrupted. Page and Slot are where the session's key is.
	Account string `json:"account,omitempty"`
	Page    string `json:"page,omitempty"`
	Slot    int    `json:"slot,omitzero"`
}

// IsErased reports whether a session's user was erased; of "*", whether any session's was.
func (st *Reader) IsErased(ctx context.Context, id sessions.ID) (bool, error) {
	_, err := st.Conn.Last(ctx, topology.BucketStream(topology.BucketStore), ErasedSubject(id))
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

// Erased returns all sessions whose user was erased and of which facts may be kept. Its error is
// natsconf.ErrUnavailable.
func (st *Reader) Erased(ctx context.Context) (map[sessions.ID]bool, error) {
	notes, err := st.ErasedRecords(ctx)
	erased := make(map[sessions.ID]bool, len(notes))
	for id := range notes {
		erased[id] = true
	}
	return erased, err
}

// ErasedRecords reads the records of erased sessions. For a record that cannot be read only the session is
// known.
func (st *Reader) ErasedRecords(ctx context.Context) (map[sessions.ID]ErasedRecord, error) {
	msgs, err := st.Conn.Newest(ctx, topology.BucketStream(topology.BucketStore), ErasedSubject("*"))
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, err
	}
	notes := make(map[sessions.ID]ErasedRecord, len(msgs))
	for _, m := range msgs {
		var r ErasedRecord
		if DecodeRecord(m.Data(), &r, &r.Version, RecordVersions) != nil {
			r = ErasedRecord{}
		}
		notes[sessions.ID(m.Subject()[strings.LastIndexByte(m.Subject(), '.')+1:])] = r
	}
	return notes, nil
}

// EachRecord reads the messages on the subjects that match, still sealed: records, or outcomes, which hold
// the same. One of a newer build is passed as an error, and a deleted one as nil. Of those that may not be
// read any more it passes what older builds stored in clear text, which stays in the files.
func (st *Reader) EachRecord(ctx context.Context, stream, subject string,
	do func(sessions.ID, *SessionRecord, error) error) error {
	_, last, err := st.Conn.Bounds(ctx, stream)
	if err != nil {
		return err
	}
	return st.Conn.Pages(ctx, stream, subject, 1, last, func(msgs []jetstream.Msg) error {
		for _, m := range msgs {
			id, r, err := sealedIn(stream, m)
			if errors.Is(err, facts.ErrUnreadable) {
				continue
			}
			plain := r != nil && err == nil && r.keyRef() == (sessions.KeyRef{})
			if !plain && isOver(m.Headers(), st.Now()) {
				continue
			}
			if err := do(id, r, err); err != nil {
				return err
			}
		}
		return nil
	})
}

// sealedIn reads a record, or the same part of an outcome; a deleted one is nil.
func sealedIn(stream string, m jetstream.Msg) (id sessions.ID, r *SessionRecord, err error) {
	id, err = sessions.ParseID(m.Subject()[strings.LastIndexByte(m.Subject(), '.')+1:])
	switch {
	case err != nil:
		return "", nil, facts.ErrUnreadable
	case natsconf.IsMarker(m.Headers()):
		return id, nil, nil
	}
	r, err = decodeOutcomeOrRecord(id, stream, m.Data())
	return id, r, err
}
