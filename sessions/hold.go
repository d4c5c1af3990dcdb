package sessions

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
)

// Hold is the fact "this identity stands for this user, as of this session". What and By are stored as keyed hashes alone: a copy of
// the store tells neither who has which identity nor whether somebody was here.
type Hold struct {
	What    string // the identity and the scope in which it may stand for one user alone
	By      string // the user, in the same scope
	Session ID     // the session that the hold is taken for
	For     time.Duration
}

// holdRecord is a Hold as it is stored. What it is about is in the subject, as a hash.
type holdRecord struct {
	Version int    `json:"v"`
	By      string `json:"by"`
	Session ID     `json:"session"`
}

// Hold lets an identity stand for a user, and no other, for h.For from now. A repeat for the same user is harmless and begins that
// time anew. Its errors are ErrHeld where it stands for another, and natsconf's.
//
// It is taken before the session's completion: of two users with one identity, only one may be verified, whatever happens in between.
// A hold whose session then ended otherwise is no hold.
func (st *Store) Hold(ctx context.Context, h Hold) error {
	subject := holdSubject(st.hash.Sum(h.What))
	r := holdRecord{Version: recordVersion, By: st.hash.Sum(h.By), Session: h.Session}
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode hold: %w", err)
	}
	for range onceTries {
		var standing uint64
		if standing, err = st.mayHold(ctx, subject, r); err != nil {
			return err
		}
		m := &nats.Msg{Subject: subject, Data: data, Header: nats.Header{
			jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(standing, 10)},
			jetstream.MsgTTLHeader:              {h.For.Truncate(time.Second).String()},
		}}
		_, err = st.identities.Publish(ctx, m)
		if err == nil {
			return nil
		}
		// Somebody was faster, perhaps ourselves, unheard: the next look tells.
		if !errors.Is(err, natsconf.ErrConflict) && !errors.Is(err, natsconf.ErrUncertain) {
			break
		}
	}
	return fmt.Errorf("hold identity: %w", err)
}

// mayHold gives the sequence of the hold that stands and may be replaced, 0 where there is none. Its errors are ErrHeld and natsconf's.
func (st *Store) mayHold(ctx context.Context, subject string, r holdRecord) (uint64, error) {
	m, err := st.conn.Last(ctx, natsconf.BucketStream(natsconf.BucketIdentities), subject)
	if errors.Is(err, natsconf.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read hold: %w", err)
	}
	var standing holdRecord
	if err := json.Unmarshal(m.Data, &standing); err != nil || standing.Version != recordVersion {
		return 0, fmt.Errorf("a hold has version %d, this build reads %d: run the newer verifyd", standing.Version, recordVersion)
	}
	if standing.By == r.By {
		return m.Sequence, nil
	}
	lapsed, err := st.lapsed(ctx, standing.Session)
	if err != nil {
		return 0, err
	}
	if !lapsed {
		return 0, ErrHeld
	}
	return m.Sequence, nil
}

// lapsed reports whether the session that a hold was taken for ended without a verification. A session whose results are no longer
// kept counts as verified: so most of those were that came as far as to hold an identity.
func (st *Store) lapsed(ctx context.Context, id ID) (bool, error) {
	v, err := st.Read(ctx, id)
	switch {
	case errors.Is(err, ErrNotFound):
		return false, nil
	case err != nil:
		return false, err
	case v.State == Expired:
		return st.now().After(v.ExpiresAt.Add(clockSkew)), nil // a completion in its last moment may still land
	default:
		return v.State == Failed || v.State == Canceled, nil
	}
}
