package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/records"
)

// IdentityHold is the fact "this identity stands for this user, as of this session". Identity and User are
// stored only as keyed hashes: a copy of the store shows neither who has which identity nor whether somebody
// used the service.
type IdentityHold struct {
	Identity string      // the identity and the scope in which it may stand for one user alone
	User     string      // the user, in the same scope
	Session  sessions.ID // the session that the identity is held for
	For      time.Duration
}

// maxEarlier bounds a hold's sessions. A user with more of them that have not ended counts as verified:
// it is their own identity.
const maxEarlier = 16

// IdentityHolds stores which identities stand for which users.
type IdentityHolds struct {
	*records.Reader

	identities   *natsconf.Writer
	identityHash *secretbox.Hash // of identities and of users
}

// ErrIdentityHeld is returned if the identity stands for another user.
var ErrIdentityHeld = errors.New("the identity stands for another user")

// HoldIdentity makes an identity stand for a user, and no other, for h.For from now. A repeat for the same
// user is harmless and restarts that time. Its errors are ErrIdentityHeld if it stands for another,
// sessions.ErrNotFound if the session's user was erased meanwhile, ErrNewer and natsconf's.
//
// It is stored before the session's completion: of two users with one identity, only one may be verified,
// whatever happens in between. A hold does not count if none of its user's sessions was verified, or still
// may be.
func (st *IdentityHolds) HoldIdentity(ctx context.Context, h IdentityHold) error {
	subject := records.HoldSubject(st.identityHash.Sum(h.Identity))
	if err := st.identities.Update(ctx, subject, func(m *jetstream.RawStreamMsg) (*nats.Msg, error) {
		r := records.HoldRecord{
			Version: records.RecordVersions.Newest, User: st.identityHash.Sum(h.User), Session: h.Session,
		}
		if err := st.canHold(ctx, m, &r); err != nil {
			return nil, err
		}
		data, err := records.EncodeRecord(r)
		if err != nil {
			return nil, fmt.Errorf("encode the identity hold: %w", err)
		}
		life := h.For.Truncate(time.Second).String()
		return &nats.Msg{Data: data, Header: nats.Header{jetstream.MsgTTLHeader: {life}}}, nil
	}); err != nil {
		return err
	}
	// An erasure that has noted the session by now may have read the holds before this one was stored. One
	// that notes it later reads them after that.
	if erased, err := st.IsErased(ctx, h.Session); err != nil || !erased {
		return err
	}
	return cmp.Or(st.withdraw(ctx, subject, h.Session), sessions.ErrNotFound)
}

// withdraw deletes a hold that rests on this session alone.
func (st *IdentityHolds) withdraw(ctx context.Context, subject string, id sessions.ID) error {
	return st.identities.Update(ctx, subject, func(m *jetstream.RawStreamMsg) (end *nats.Msg, err error) {
		var r records.HoldRecord
		if m != nil {
			err = records.DecodeRecord(m.Data, &r, &r.Version, records.RecordVersions)
		}
		if err == nil && r.Session == id && len(r.Earlier) == 0 && !r.Confirmed {
			end = natsconf.Marker(subject)
		}
		return end, err
	})
}

// HoldSlot holds an identity in one of several slots: in the one that stands for the user, or else in the
// first that stands for no user. Each slot is held as by HoldIdentity; the error is ErrIdentityHeld if all
// of them stand for others.
func (st *IdentityHolds) HoldSlot(ctx context.Context, slots []IdentityHold) error {
	own, err := st.slotsOf(ctx, slots)
	if err != nil {
		return err
	}
	for _, slot := range append(own, slots...) {
		if err := st.HoldIdentity(ctx, slot); !errors.Is(err, ErrIdentityHeld) {
			return err
		}
	}
	return ErrIdentityHeld
}

// slotsOf returns the slots that stand for their user.
func (st *IdentityHolds) slotsOf(ctx context.Context, slots []IdentityHold) (own []IdentityHold, err error) {
	for _, slot := range slots {
		m, err := st.Conn.Last(ctx, topology.BucketStream(topology.BucketIdentities),
			records.HoldSubject(st.identityHash.Sum(slot.Identity)))
		if errors.Is(err, natsconf.ErrNotFound) || err == nil && natsconf.IsMarker(m.Header) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the hold of an identity: %w", err)
		}
		var r records.HoldRecord
		if err := records.DecodeRecord(m.Data, &r, &r.Version, records.RecordVersions); err != nil {
			return nil, fmt.Errorf("the hold of an identity: %w", err)
		}
		if r.User == st.identityHash.Sum(slot.User) {
			own = append(own, slot)
		}
	}
	return own, nil
}

// canHold checks that the existing hold, if any, may be replaced, and adds to r what must be carried over
// from it. Its errors are ErrIdentityHeld, ErrNewer and natsconf's.
func (st *IdentityHolds) canHold(ctx context.Context, m *jetstream.RawStreamMsg,
	r *records.HoldRecord) error {
	if m == nil { // or its user was erased
		return nil
	}
	var existing records.HoldRecord
	if err := records.DecodeRecord(m.Data, &existing, &existing.Version, records.RecordVersions); err != nil {
		return fmt.Errorf("the hold of an identity: %w", err)
	}
	open, confirmed, err := st.supportingSessions(ctx, existing)
	switch {
	case err != nil:
		return err
	case existing.User == r.User:
		r.Earlier = slices.DeleteFunc(open, func(id sessions.ID) bool { return id == r.Session })
		r.Confirmed = confirmed || len(r.Earlier) > maxEarlier
		if r.Confirmed {
			r.Earlier = nil
		}
	case confirmed || len(open) > 0:
		return ErrIdentityHeld
	}
	return nil
}

// supportingSessions returns the sessions that support a hold: those that have not ended; confirmed means
// that one was verified. A hold with neither has lapsed. A session whose results are no longer kept
// counts as verified: most of those that came as far as holding an identity were.
func (st *IdentityHolds) supportingSessions(ctx context.Context, r records.HoldRecord) (open []sessions.ID,
	confirmed bool,
	err error) {
	if r.Confirmed {
		return nil, true, nil
	}
	for _, id := range append(r.Earlier, r.Session) {
		v, err := st.ReadOutcome(ctx, id)
		switch {
		case errors.Is(err, sessions.ErrNotFound):
			return nil, true, nil
		case err != nil:
			return nil, false, err
		case v.State == sessions.Verified:
			return nil, true, nil
		case v.State == sessions.Pending, v.State == sessions.Expired &&
			!st.Now().After(v.ExpiresAt.Add(records.ClockSkew)):
			// a completion in its last moment may still land
			open = append(open, id)
		}
	}
	return open, false, nil
}
