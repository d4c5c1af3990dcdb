package sessions

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
)

// Unfinished is a delivery that has not come to an end.
type Unfinished struct {
	Number  int  // the attempt that is claimed, or the next one
	Claimed bool // somebody may be sending it
	// SettleAfter is the instant from which anyone may settle it; zero unless claimed.
	SettleAfter time.Time
	CompletedAt time.Time // of its session
}

// Unfinished returns the deliveries that have not come to an end, from all facts with sequences from a given
// one on, and the sequence after the last of these. The result of an earlier call may be passed as known, to
// be updated. Its error is natsconf.ErrUnavailable, or that of a fact that cannot be read.
func (st *Store) Unfinished(ctx context.Context, from uint64, known map[ID]Unfinished) (map[ID]Unfinished,
	uint64, error) {
	if known == nil {
		known = map[ID]Unfinished{}
	}
	_, last, err := st.conn.Bounds(ctx, natsconf.StreamCompletions)
	if err != nil {
		return nil, 0, err
	}
	if last < from {
		return known, from, nil
	}
	err = st.conn.Pages(ctx, natsconf.StreamCompletions, ">", from, last, func(msgs []jetstream.Msg) error {
		for _, m := range msgs {
			if err := apply(known, m.Subject(), m.Data()); err != nil {
				return fmt.Errorf("fact on subject %q: %w", m.Subject(), err)
			}
		}
		return nil
	})
	return known, last + 1, err
}

// OfFact returns the session that a fact is about, from its subject.
func OfFact(subject string) ID {
	_, rest, _ := strings.Cut(subject, ".")
	name, _, _ := strings.Cut(rest, ".")
	return ID(name)
}

// OfEvent returns the session that an event is about, from its subject.
func OfEvent(subject string) ID { return ID(subject[strings.LastIndexByte(subject, '.')+1:]) }

// apply applies one more fact, in the order in which they were written. What cannot be read has the meaning
// that is defined (ErrUnreadable).
func apply(open map[ID]Unfinished, subject string, data []byte) error {
	p, ok := parseFactSubject(subject)
	if !ok {
		return nil
	}
	switch p.kind {
	case "completion":
		return applyCompletion(open, p.id, data)
	case "claim":
		c, err := decodeClaim(p.id, p.n, data)
		if errors.Is(err, ErrNewer) {
			return err
		}
		if d := open[p.id]; err != nil && (d.Number != p.n || d.Claimed) {
			return nil // it was not due
		}
		// of one that cannot be read: at once
		open[p.id] = Unfinished{
			Number: p.n, Claimed: true, SettleAfter: c.SettleAfter, CompletedAt: completedAt(open, p.id),
		}
	case "resend":
		_, err := decodeResend(p.id, p.n, data)
		if errors.Is(err, ErrNewer) {
			return err
		}
		if err == nil {
			open[p.id] = Unfinished{Number: p.n, CompletedAt: completedAt(open, p.id)}
		}
	case "result":
		r, err := decodeResult(p.id, p.n, data)
		if errors.Is(err, ErrNewer) {
			return err
		}
		switch claimed := open[p.id]; {
		case err == nil && r.leavesDue():
			open[p.id] = Unfinished{Number: p.n + 1, CompletedAt: completedAt(open, p.id)}
		case err == nil, claimed.Number == p.n &&
			claimed.Claimed: // what cannot be read ends no attempt but the one under way
			delete(open, p.id)
		}
	}
	return nil
}

func applyCompletion(open map[ID]Unfinished, id ID, data []byte) error {
	var c completionRecord
	err := decodeOf(id, data, &c, &c.Version)
	switch {
	case errors.Is(err, ErrUnreadable): // there is nothing to deliver
		return nil
	case err != nil:
		return err
	case c.State == Verified, c.State == Failed:
		open[id] = Unfinished{Number: 1, CompletedAt: c.CompletedAt}
	}
	return nil
}

func completedAt(open map[ID]Unfinished, id ID) time.Time { return open[id].CompletedAt }

// restorer is who wrote the claims and results of CloseUnfinished.
const restorer = "restore"

// CloseUnfinished ends every delivery that has not come to an end as unknown, and lets every session expire
// that could still be completed: nobody knows whether they were sent, and completed, after the backup. It is
// for a store that was restored and is not in service. It returns how many there were of each. A repeat is
// harmless. Its errors are those of Unfinished, and natsconf's.
func (st *Store) CloseUnfinished(ctx context.Context, written time.Time) (deliveries, open int, err error) {
	unfinished, _, err := st.Unfinished(ctx, 1, nil)
	if err != nil {
		return 0, 0, err
	}
	why := "the store was restored from a backup of " + written.UTC().
		Format(time.RFC3339) + "; whether this callback was sent after that is not known"
	for id, u := range unfinished {
		if err := st.endUnknown(ctx, id, u, restorer, why); err != nil {
			return 0, 0, err
		}
	}
	open, err = st.expireOpen(ctx)
	return len(unfinished), open, err
}

// endUnknown ends a delivery of which nobody knows whether it was sent. A repeat is harmless.
func (st *Store) endUnknown(ctx context.Context, id ID, u Unfinished, by, why string) error {
	now := st.instant()
	if !u.Claimed {
		err := st.Claim(ctx, NewClaim(id, u.Number, by, now, 0, 0))
		if err != nil && !errors.Is(err, ErrClaimed) {
			return err
		}
	}
	r := NewResult(id, u.Number, VerdictUnknown, ClassRestored, by, now)
	r.Detail = why
	_, err := st.Settle(ctx, r)
	if err != nil && !errors.Is(err, ErrSettled) {
		return err
	}
	return nil
}

// expireOpen makes the sessions expire now that could still be completed.
func (st *Store) expireOpen(ctx context.Context) (n int, err error) {
	stream := natsconf.BucketStream(natsconf.BucketSessions)
	_, last, err := st.conn.Bounds(ctx, stream)
	if err != nil {
		return 0, err
	}
	now := st.instant()
	var open []*nats.Msg
	err = st.conn.Pages(ctx, stream, ">", 1, last, func(msgs []jetstream.Msg) error {
		for _, m := range msgs {
			end, err := expiry(m, now)
			if err != nil {
				return err
			}
			if end != nil {
				open = append(open, end)
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	for _, m := range open {
		if _, err := st.pending.Publish(ctx, m); err != nil {
			return 0, fmt.Errorf("expire a session: %w", err)
		}
	}
	return len(open), nil
}

// expiry returns a new record of a session that could still be completed at an instant: expired by then.
// nil: it could not.
func expiry(m jetstream.Msg, at time.Time) (*nats.Msg, error) {
	id, ok := recordOf(m.Subject())
	if !ok || natsconf.IsMarker(m.Headers()) {
		return nil, nil //nolint:nilnil // most cannot
	}
	var r record
	err := decodeOf(id, m.Data(), &r, &r.Version)
	if errors.Is(err, ErrUnreadable) || err == nil && !at.Before(r.ExpiresAt) {
		return nil, nil //nolint:nilnil // most cannot
	}
	if err != nil {
		return nil, err
	}
	r.ExpiresAt = at
	data, err := encodeRecord(r)
	if err != nil {
		return nil, fmt.Errorf("encode session: %w", err)
	}
	return &nats.Msg{Subject: m.Subject(), Data: data}, nil
}

// recordOf returns the session whose record is on a subject of the sessions bucket; ok is false for what
// else is there.
func recordOf(subject string) (id ID, ok bool) {
	parts := strings.Split(subject, ".")
	if len(parts) != 4 || parts[2] == "redeemed" {
		return "", false
	}
	id, err := ParseID(parts[3])
	return id, err == nil
}
