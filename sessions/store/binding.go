package store

import (
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

// IdentityBinding is the fact "this identity stands for this user, as of this session". Identity and User are
// stored only as keyed hashes: a copy of the store shows neither who has which identity nor whether somebody
// used the service.
type IdentityBinding struct {
	Identity string      // the identity and the scope in which it may stand for one user alone
	User     string      // the user, in the same scope
	Session  sessions.ID // the session that the identity is bound for
	For      time.Duration
}

// maxEarlier bounds a binding's sessions. A user with more of them that have not ended counts as verified:
// it is their own identity.
const maxEarlier = 16

// Bindings stores which identities stand for which users.
type Bindings struct {
	*records.Reader

	identities   *natsconf.Writer
	identityHash *secretbox.Hash // of identities and of users
}

// ErrIdentityBound is returned if the identity is bound to another user.
var ErrIdentityBound = errors.New("the identity is bound to another user")

// BindIdentity makes an identity stand for a user, and no other, for h.For from now. A repeat for the same
// user is harmless and restarts that time. Its errors are ErrIdentityBound if it stands for another, ErrNewer
// and natsconf's.
//
// It is stored before the session's completion: of two users with one identity, only one may be verified,
// whatever happens in between. A binding does not count if none of its user's sessions was verified, or still
// may be.
func (st *Bindings) BindIdentity(ctx context.Context, h IdentityBinding) error {
	subject := records.BindingSubject(st.identityHash.Sum(h.Identity))
	return st.identities.Update(ctx, subject, func(m *jetstream.RawStreamMsg) (*nats.Msg, error) {
		r := records.BindingRecord{
			Version: records.RecordVersions.Newest, User: st.identityHash.Sum(h.User), Session: h.Session,
		}
		if err := st.canBind(ctx, m, &r); err != nil {
			return nil, err
		}
		data, err := records.EncodeRecord(r)
		if err != nil {
			return nil, fmt.Errorf("encode the identity binding: %w", err)
		}
		life := h.For.Truncate(time.Second).String()
		return &nats.Msg{Data: data, Header: nats.Header{jetstream.MsgTTLHeader: {life}}}, nil
	})
}

// BindSlot binds an identity in one of several slots: in the one that stands for the user, or else in the
// first that stands for no user. Each slot is bound as by BindIdentity; the error is ErrIdentityBound if all
// of them stand for others.
func (st *Bindings) BindSlot(ctx context.Context, slots []IdentityBinding) error {
	own, err := st.slotsOf(ctx, slots)
	if err != nil {
		return err
	}
	for _, slot := range append(own, slots...) {
		if err := st.BindIdentity(ctx, slot); !errors.Is(err, ErrIdentityBound) {
			return err
		}
	}
	return ErrIdentityBound
}

// slotsOf returns the slots that stand for their user.
func (st *Bindings) slotsOf(ctx context.Context, slots []IdentityBinding) (own []IdentityBinding, err error) {
	for _, slot := range slots {
		m, err := st.Conn.Last(ctx, topology.BucketStream(topology.BucketIdentities),
			records.BindingSubject(st.identityHash.Sum(slot.Identity)))
		if errors.Is(err, natsconf.ErrNotFound) || err == nil && natsconf.IsMarker(m.Header) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the binding of an identity: %w", err)
		}
		var r records.BindingRecord
		if err := records.DecodeRecord(m.Data, &r, &r.Version, records.RecordVersions); err != nil {
			return nil, fmt.Errorf("the binding of an identity: %w", err)
		}
		if r.User == st.identityHash.Sum(slot.User) {
			own = append(own, slot)
		}
	}
	return own, nil
}

// canBind checks that the existing binding, if any, may be replaced, and adds to r what must be carried over
// from it. Its errors are ErrIdentityBound, ErrNewer and natsconf's.
func (st *Bindings) canBind(ctx context.Context, m *jetstream.RawStreamMsg, r *records.BindingRecord) error {
	if m == nil { // or its user was erased
		return nil
	}
	var existing records.BindingRecord
	if err := records.DecodeRecord(m.Data, &existing, &existing.Version, records.RecordVersions); err != nil {
		return fmt.Errorf("the binding of an identity: %w", err)
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
		return ErrIdentityBound
	}
	return nil
}

// supportingSessions returns the sessions that support a binding: those that have not ended; confirmed means
// that one was verified. A binding with neither has lapsed. A session whose results are no longer kept
// counts as verified: most of those that came as far as binding an identity were.
func (st *Bindings) supportingSessions(ctx context.Context, r records.BindingRecord) (open []sessions.ID,
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
