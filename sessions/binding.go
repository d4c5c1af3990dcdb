package sessions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// IdentityBinding is the fact "this identity stands for this user, as of this session". Identity and User
// are stored as keyed hashes alone: a copy of the store shows neither who has which identity nor whether
// somebody used the service.
type IdentityBinding struct {
	Identity string // the identity and the scope in which it may stand for one user alone
	User     string // the user, in the same scope
	Session  ID     // the session that the identity is bound for
	For      time.Duration
}

// bindingRecord is an IdentityBinding as it is stored. What it is about is in the subject, as a hash.
type bindingRecord struct {
	Version int    `json:"v"`
	User    string `json:"by"`
	Session ID     `json:"session"` // the user's newest
	// Earlier are sessions of the same user that held the identity before and had not ended then; Confirmed
	// says that one of that user's was verified. So a binding lapses with the last of its user's sessions,
	// never with the newest alone.
	Earlier   []ID `json:"earlier,omitempty"`
	Confirmed bool `json:"sure,omitzero"`
}

// maxEarlier bounds a binding's sessions. A user with more of them that have not ended counts as verified:
// it is their own identity.
const maxEarlier = 16

// BindIdentity lets an identity stand for a user, and no other, for h.For from now. A repeat for the same
// user is harmless and begins that time anew. Its errors are ErrIdentityBound where it stands for another,
// ErrNewer and natsconf's.
//
// It is stored before the session's completion: of two users with one identity, only one may be verified,
// whatever happens in between. A binding none of whose user's sessions was verified, or still may be, does
// not count.
func (st *Store) BindIdentity(ctx context.Context, h IdentityBinding) error {
	subject := bindingSubject(st.identityHash.Sum(h.Identity))
	return st.identities.Update(ctx, subject, func(m *jetstream.RawStreamMsg) (*nats.Msg, error) {
		r := bindingRecord{
			Version: recordVersions.newest, User: st.identityHash.Sum(h.User), Session: h.Session,
		}
		if err := st.canBind(ctx, m, &r); err != nil {
			return nil, err
		}
		data, err := encodeRecord(r)
		if err != nil {
			return nil, fmt.Errorf("encode the identity binding: %w", err)
		}
		life := h.For.Truncate(time.Second).String()
		return &nats.Msg{Data: data, Header: nats.Header{jetstream.MsgTTLHeader: {life}}}, nil
	})
}

// canBind checks that the binding that stands, if any, may be replaced, and adds to r what it has to carry on
// of that one. Its errors are ErrIdentityBound, ErrNewer and natsconf's.
func (st *Store) canBind(ctx context.Context, m *jetstream.RawStreamMsg, r *bindingRecord) error {
	if m == nil { // or its user was erased
		return nil
	}
	var existing bindingRecord
	if err := decodeRecord(m.Data, &existing, &existing.Version, recordVersions); err != nil {
		return fmt.Errorf("the binding of an identity: %w", err)
	}
	open, confirmed, err := st.supportingSessions(ctx, existing)
	switch {
	case err != nil:
		return err
	case existing.User == r.User:
		r.Earlier = slices.DeleteFunc(open, func(id ID) bool { return id == r.Session })
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
func (st *Store) supportingSessions(ctx context.Context, r bindingRecord) (open []ID, confirmed bool,
	err error) {
	if r.Confirmed {
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
		case v.State == Pending, v.State == Expired &&
			!st.now().After(v.ExpiresAt.Add(clockSkew)): // a completion in its last moment may still land
			open = append(open, id)
		}
	}
	return open, false, nil
}
