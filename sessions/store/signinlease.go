package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/records"
)

// ErrLeaseHeld is returned if another browser has the session's lease; the existing lease is returned with
// it.
var ErrLeaseHeld = errors.New("another browser holds the session's sign-in lease")

// leaseSubject has one word more than a session's record, so that no look-up of a record finds it.
func leaseSubject(id sessions.ID) string {
	return topology.BucketSubject(topology.BucketSessions, "seat.browser."+string(id))
}

// Leases stores which browser signs in for a session.
type Leases struct{ *records.Writer }

// LeaseOf reads a session's lease from the leader. It is empty if no browser holds it. Its errors are
// natsconf's.
func (st *Leases) LeaseOf(ctx context.Context, id sessions.ID) (sessions.SignInLease, error) {
	m, err := st.Conn.Last(ctx, topology.BucketStream(topology.BucketSessions), leaseSubject(id))
	if errors.Is(err, natsconf.ErrNotFound) {
		return sessions.SignInLease{}, nil
	}
	if err != nil {
		return sessions.SignInLease{}, fmt.Errorf("read who has the sign-in lease of session %s: %w", id, err)
	}
	return decodeLease(m.Data), nil
}

// AcquireLease acquires the lease of a session for a browser, or extends it to LeaseDuration from now.
// browser is up to 64 characters of [a-zA-Z0-9]. The error is ErrLeaseHeld, with the existing lease, while
// another browser holds it; others are natsconf's, and a repeat after those is harmless.
func (st *Leases) AcquireLease(ctx context.Context, id sessions.ID, browser string) (sessions.SignInLease,
	error) {
	return st.changeLease(ctx, id, func(l sessions.SignInLease, now time.Time) (sessions.SignInLease, error) {
		if l.HeldByOther(browser, now) {
			return l, ErrLeaseHeld
		}
		return sessions.SignInLease{Browser: browser, At: now}, nil
	})
}

// ReleaseLease releases a session's lease, so that another browser may begin at once. If the browser does not
// hold it, nothing happens. Its errors are natsconf's.
func (st *Leases) ReleaseLease(ctx context.Context, id sessions.ID, browser string) error {
	_, err := st.changeLease(ctx, id, func(l sessions.SignInLease,
		_ time.Time) (sessions.SignInLease, error) {
		l.Released = l.Released || l.Browser == browser
		return l, nil
	})
	return err
}

// decodeLease returns an empty lease for one of a newer build: it keeps no browser out, since a lease only
// spares people trouble.
func decodeLease(data []byte) sessions.SignInLease {
	var r records.LeaseRecord
	if err := records.DecodeRecord(data, &r, &r.Version, records.RecordVersions); err != nil {
		return sessions.SignInLease{}
	}
	return r.SignInLease
}

// changeLease changes a session's lease. It writes nothing if that stays as it is.
func (st *Leases) changeLease(ctx context.Context, id sessions.ID,
	change func(l sessions.SignInLease, now time.Time) (sessions.SignInLease, error),
) (lease sessions.SignInLease, err error) {
	life := nats.Header{jetstream.MsgTTLHeader: {sessions.Lifetime.String()}}
	err = st.Pending.Update(ctx, leaseSubject(id), func(m *jetstream.RawStreamMsg) (*nats.Msg, error) {
		var before sessions.SignInLease
		if m != nil {
			before = decodeLease(m.Data)
		}
		if lease, err = change(before, st.Instant()); err != nil || lease == before {
			return nil, err
		}
		data, err := records.EncodeRecord(records.LeaseRecord{Version: records.RecordVersions.Newest,
			SignInLease: lease})
		return &nats.Msg{Data: data, Header: life}, err
	})
	if err != nil && !errors.Is(err, ErrLeaseHeld) {
		return sessions.SignInLease{}, fmt.Errorf("change the sign-in lease of session %s: %w", id, err)
	}
	return lease, err
}
