package sessions

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	Session ID     `json:"session"` // the user's newest
	// Earlier are sessions of the same user that held the identity before and had not ended then; Sure says that one of that user's
	// was verified. So a hold lapses with the last of its user's sessions, never with the newest alone.
	Earlier []ID `json:"earlier,omitempty"`
	Sure    bool `json:"sure,omitzero"`
}

// earlierMost bounds a hold's sessions. A user with more of them that have not ended counts as verified: it is their own identity.
const earlierMost = 16

// holdTries bounds how often a hold is tried. While another's publish is in flight the server refuses ours, and a read does not show it
// yet; on a cluster with much to do that takes a tenth of a second. With the doubled pauses it is two thirds of one.
const holdTries = 5

// Hold lets an identity stand for a user, and no other, for h.For from now. A repeat for the same user is harmless and begins that
// time anew. Its errors are ErrHeld where it stands for another, ErrNewer and natsconf's.
//
// It is taken before the session's completion: of two users with one identity, only one may be verified, whatever happens in between.
// A hold none of whose user's sessions was verified, or still may be, is no hold.
func (st *Store) Hold(ctx context.Context, h Hold) error {
	subject := holdSubject(st.hash.Sum(h.What))
	var failed error
	for try := range holdTries {
		r := holdRecord{Version: recordVersion, By: st.hash.Sum(h.By), Session: h.Session}
		standing, err := st.mayHold(ctx, subject, &r)
		if err != nil {
			return err
		}
		data, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("encode hold: %w", err)
		}
		m := &nats.Msg{Subject: subject, Data: data, Header: nats.Header{
			jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(standing, 10)},
			jetstream.MsgTTLHeader:              {h.For.Truncate(time.Second).String()},
		}}
		if _, failed = st.identities.Publish(ctx, m); failed == nil {
			return nil
		}
		// Somebody was faster, perhaps ourselves, unheard: the next look tells, once what is in flight has landed.
		if !errors.Is(failed, natsconf.ErrConflict) && !errors.Is(failed, natsconf.ErrUncertain) {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("hold identity: %w: %w", natsconf.ErrUncertain, ctx.Err())
		case <-time.After(oncePause << try):
		}
	}
	return fmt.Errorf("hold identity: %w", failed)
}

// mayHold gives the sequence of the hold that stands and may be replaced, 0 where there is none, and adds to r what it has to carry on
// of that one. Its errors are ErrHeld, ErrNewer and natsconf's.
func (st *Store) mayHold(ctx context.Context, subject string, r *holdRecord) (uint64, error) {
	m, err := st.conn.Last(ctx, natsconf.BucketStream(natsconf.BucketIdentities), subject)
	if errors.Is(err, natsconf.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read hold: %w", err)
	}
	if natsconf.IsMarker(m.Header) {
		return m.Sequence, nil // its user was erased
	}
	var standing holdRecord
	if err := decode(m.Data, &standing, &standing.Version); err != nil {
		return 0, fmt.Errorf("hold of an identity: %w", err)
	}
	open, sure, err := st.behind(ctx, standing)
	switch {
	case err != nil:
		return 0, err
	case standing.By == r.By:
		r.Earlier = slices.DeleteFunc(open, func(id ID) bool { return id == r.Session })
		r.Sure = sure || len(r.Earlier) > earlierMost
		if r.Sure {
			r.Earlier = nil
		}
	case sure || len(open) > 0:
		return 0, ErrHeld
	}
	return m.Sequence, nil
}

// behind gives what a hold rests on: sessions that have not ended, or the certainty that one was verified. Neither: it has lapsed.
// A session whose results are no longer kept counts as verified: so most of those were that came as far as to hold an identity.
func (st *Store) behind(ctx context.Context, r holdRecord) (open []ID, sure bool, err error) {
	if r.Sure {
		return nil, true, nil
	}
	for _, id := range append(r.Earlier, r.Session) {
		v, err := st.Read(ctx, id)
		switch {
		case errors.Is(err, ErrNotFound):
			return nil, true, nil
		case err != nil:
			return nil, false, err
		case v.State == Verified:
			return nil, true, nil
		case v.State == Pending, v.State == Expired && !st.now().After(v.ExpiresAt.Add(clockSkew)): // a completion in its last moment may still land
			open = append(open, id)
		}
	}
	return open, false, nil
}
