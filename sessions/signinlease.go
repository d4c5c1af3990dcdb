package sessions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
)

// LeaseDuration is how long the browser that began a sign-in excludes others, counted from its last press of
// Continue: a user who has not come back from a provider by then is seldom still there, and the session
// lasts ten minutes in all.
const LeaseDuration = 2 * time.Minute

// ErrLeaseHeld is returned where another browser has the session's lease; the lease that stands is returned
// beside it.
var ErrLeaseHeld = errors.New("another browser holds the session's sign-in lease")

// SignInLease says which browser signs in for a session. It is not a fact of the session and does not affect
// its outcome: it keeps two browsers from signing in at the same time, on however many edges, and ends with
// the session.
type SignInLease struct {
	// its holder, as the caller names browsers; empty: nobody ever held it
	Browser  string    `json:"browser"`
	At       time.Time `json:"at"`            // of the browser's last press
	Released bool      `json:"free,omitzero"` // its browser released it
}

// Until is when another browser may take over.
func (s SignInLease) Until() time.Time {
	if s.Released || s.Browser == "" {
		return s.At
	}
	return s.At.Add(LeaseDuration)
}

// HeldByOther reports whether another browser holds the lease at an instant.
func (s SignInLease) HeldByOther(browser string, now time.Time) bool {
	return s.Browser != "" && s.Browser != browser && now.Before(s.Until())
}

// TakenOverFrom reports whether another browser has taken the lease over from this one.
func (s SignInLease) TakenOverFrom(browser string) bool {
	return s.Browser != "" && s.Browser != browser && !s.Released
}

// leaseRecord is a SignInLease as it is stored.
type leaseRecord struct {
	Version int    `json:"v"`
	Nonce   string `json:"nonce,omitempty"` // of earlier builds, whose loop it served; nobody reads it
	SignInLease
}

// leaseSubject has one word more than a session's record, so that no look-up of a record finds it.
func leaseSubject(id ID) string {
	return natsconf.BucketSubject(natsconf.BucketSessions, "seat.browser."+string(id))
}

// LeaseOf reads a session's lease from the leader. It is empty where nobody holds it. Its errors are
// natsconf's.
func (st *Store) LeaseOf(ctx context.Context, id ID) (SignInLease, error) {
	m, err := st.conn.Last(ctx, natsconf.BucketStream(natsconf.BucketSessions), leaseSubject(id))
	if errors.Is(err, natsconf.ErrNotFound) {
		return SignInLease{}, nil
	}
	if err != nil {
		return SignInLease{}, fmt.Errorf("read who has the sign-in lease of session %s: %w", id, err)
	}
	return decodeLease(m.Data), nil
}

// AcquireLease returns a browser the lease of a session, or extends it to LeaseDuration from now. browser is
// up to 64 characters of [a-zA-Z0-9]. The error is ErrLeaseHeld, with the existing lease, while another
// browser holds it; others are natsconf's, and a repeat after those is harmless.
func (st *Store) AcquireLease(ctx context.Context, id ID, browser string) (SignInLease, error) {
	return st.changeLease(ctx, id, func(current SignInLease, now time.Time) (SignInLease, bool, error) {
		if current.HeldByOther(browser, now) {
			return current, false, ErrLeaseHeld
		}
		return SignInLease{Browser: browser, At: now}, true, nil
	})
}

// ReleaseLease releases a session's lease, so that another browser may begin at once. Where the browser does
// not hold it, nothing happens. Its errors are natsconf's.
func (st *Store) ReleaseLease(ctx context.Context, id ID, browser string) error {
	_, err := st.changeLease(ctx, id, func(current SignInLease, _ time.Time) (SignInLease, bool, error) {
		if current.Browser != browser || current.Released {
			return current, false, nil
		}
		current.Released = true
		return current, true, nil
	})
	return err
}

// decodeLease returns an empty lease for one of a newer build: nobody is kept out for its sake, since a lease
// only spares people trouble.
func decodeLease(data []byte) SignInLease {
	var r leaseRecord
	if err := decodeRecord(data, &r, &r.Version, recordVersions); err != nil {
		return SignInLease{}
	}
	return r.SignInLease
}

// changeLease changes a session's lease. change returns what should stand, and whether anything is to be
// written.
func (st *Store) changeLease(
	ctx context.Context, id ID, change func(SignInLease, time.Time) (SignInLease, bool, error),
) (lease SignInLease, err error) {
	err = st.pending.Update(ctx, leaseSubject(id), func(m *jetstream.RawStreamMsg) (*nats.Msg, error) {
		var now SignInLease
		if m != nil {
			now = decodeLease(m.Data)
		}
		var write bool
		if lease, write, err = change(now, st.instant()); err != nil || !write {
			return nil, err
		}
		data, err := encodeRecord(leaseRecord{Version: recordVersions.newest, SignInLease: lease})
		if err != nil {
			return nil, fmt.Errorf("encode the sign-in lease: %w", err)
		}
		return &nats.Msg{Data: data, Header: nats.Header{jetstream.MsgTTLHeader: {Lifetime.String()}}}, nil
	})
	if err != nil && !errors.Is(err, ErrLeaseHeld) {
		return SignInLease{}, fmt.Errorf("change the sign-in lease of session %s: %w", id, err)
	}
	return lease, err
}
