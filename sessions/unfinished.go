package sessions

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
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
}

// Unfinished gives the deliveries that have not come to an end, from all facts with sequences from a given one on, and the sequence
// behind the last of these. What is known from an earlier call may be handed in, to be brought up to date. Its error is
// natsconf.ErrUnavailable, or that of a fact that cannot be read.
func (st *Store) Unfinished(ctx context.Context, from uint64, known map[ID]Unfinished) (map[ID]Unfinished, uint64, error) {
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
			if err := follow(known, m.Subject(), m.Data()); err != nil {
				return fmt.Errorf("fact on subject %q: %w", m.Subject(), err)
			}
		}
		return nil
	})
	return known, last + 1, err
}

// OfFact gives the session that a fact is about, from its subject.
func OfFact(subject string) ID {
	_, rest, _ := strings.Cut(subject, ".")
	name, _, _ := strings.Cut(rest, ".")
	return ID(name)
}

// follow takes one more fact, in the order in which they were written. What cannot be read counts for what it means (ErrUnreadable).
func follow(open map[ID]Unfinished, subject string, data []byte) error {
	p, ok := placeOf(subject)
	if !ok {
		return nil
	}
	switch p.kind {
	case "completion":
		return followCompletion(open, p.id, data)
	case "claim":
		c, err := decodeClaim(p.id, p.n, data)
		if errors.Is(err, ErrNewer) {
			return err
		}
		if due := open[p.id]; err != nil && (due.Number != p.n || due.Claimed) {
			return nil // nobody had a reason to make it
		}
		open[p.id] = Unfinished{Number: p.n, Claimed: true, SettleAfter: c.SettleAfter} // of one that cannot be read: at once
	case "resend":
		_, err := decodeResend(p.id, p.n, data)
		if errors.Is(err, ErrNewer) {
			return err
		}
		if err == nil {
			open[p.id] = Unfinished{Number: p.n}
		}
	case "result":
		r, err := decodeResult(p.id, p.n, data)
		if errors.Is(err, ErrNewer) {
			return err
		}
		switch claimed := open[p.id]; {
		case err == nil && r.leavesDue():
			open[p.id] = Unfinished{Number: p.n + 1}
		case err == nil, claimed.Number == p.n && claimed.Claimed: // what cannot be read ends no attempt but the one under way
			delete(open, p.id)
		}
	}
	return nil
}

func followCompletion(open map[ID]Unfinished, id ID, data []byte) error {
	var c struct {
		Version int   `json:"v"`
		State   State `json:"state"`
	}
	err := decodeOf(id, data, &c, &c.Version)
	switch {
	case errors.Is(err, ErrUnreadable): // there is nothing to deliver
		return nil
	case err != nil:
		return err
	case c.State == Verified, c.State == Failed:
		open[id] = Unfinished{Number: 1}
	}
	return nil
}

// restorer is who wrote the claims and results of CloseUnfinished.
const restorer = "restore"

// CloseUnfinished ends every delivery that has not come to an end as unknown, and lets every session expire that could still be
// completed: whether they were sent, and completed, after this store was written down nobody knows. It is for a store that was
// restored, which nobody serves. It gives how many there were of each. A repeat is harmless. Its errors are those of Unfinished, and
// natsconf's.
func (st *Store) CloseUnfinished(ctx context.Context, written time.Time) (deliveries, open int, err error) {
	unfinished, _, err := st.Unfinished(ctx, 1, nil)
	if err != nil {
		return 0, 0, err
	}
	for id, u := range unfinished {
		now := st.instant()
		if !u.Claimed {
			err := st.Claim(ctx, Claim{Session: id, Number: u.Number, Worker: restorer, At: now, Deadline: now, SettleAfter: now})
			if err != nil && !errors.Is(err, ErrClaimed) {
				return 0, 0, err
			}
		}
		_, err := st.Settle(ctx, Result{
			Session: id, Number: u.Number, Verdict: VerdictUnknown, Class: ClassRestored, By: restorer, At: now,
			Detail: "the store was restored from a backup of " + written.UTC().Format(time.RFC3339) + "; whether this callback was sent after that is not known",
		})
		if err != nil && !errors.Is(err, ErrSettled) {
			return 0, 0, err
		}
	}
	open, err = st.expireOpen(ctx)
	return len(unfinished), open, err
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

// expiry makes the record anew of a session that could still be completed at an instant: expired by then. nil: it could not.
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
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode session: %w", err)
	}
	return &nats.Msg{Subject: m.Subject(), Data: data}, nil
}

// recordOf gives the session whose record is on a subject of the sessions bucket; ok is false for what else is there.
func recordOf(subject string) (id ID, ok bool) {
	parts := strings.Split(subject, ".")
	if len(parts) != 4 || parts[2] == "redeemed" {
		return "", false
	}
	id, err := ParseID(parts[3])
	return id, err == nil
}
