package recovery

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/records"
)

// recoverer is the writer of the claims and results of CloseLost.
const recoverer = "recover"

// CloseLost ends sessions and deliveries whose end a damaged store no longer knows, because facts that were
// stored between two instants are lost; a zero instant is unbounded. Deliveries of outcomes from before the
// later instant that have not ended become unknown: their claims may be among the lost facts. Sessions that
// may have been completed in between, and of which no outcome is left, are closed, so that they are not
// completed again. It is for a store that is not served, and returns how many there were of each. A repeat is
// harmless. Its errors are those of Unfinished, and natsconf's.
func (st *Recovery) CloseLost(ctx context.Context, from, to time.Time) (deliveries, closed int, err error) {
	if deliveries, err = st.endLost(ctx, to); err != nil {
		return deliveries, 0, err
	}
	lost, err := st.maybeCompleted(ctx, from, to)
	if err != nil {
		return deliveries, 0, err
	}
	for _, s := range lost {
		did, err := st.closeLost(ctx, s)
		if err != nil {
			return deliveries, closed, err
		}
		if did {
			closed++
		}
	}
	return deliveries, closed, nil
}

// endLost ends the deliveries whose claims may be lost, and then fills the gaps that the loss has left in the
// facts of attempts: not before, since a repeat after an interruption must find the same open deliveries.
func (st *Recovery) endLost(ctx context.Context, to time.Time) (deliveries int, err error) {
	gaps, err := st.gaps(ctx)
	if err != nil {
		return 0, err
	}
	unfinished, _, err := st.Unfinished(ctx, 1, nil)
	if err != nil {
		return 0, err
	}
	const why = "the store was damaged, and whether this callback was sent is among what it lost"
	for id, u := range unfinished {
		if !to.IsZero() && u.CompletedAt.After(to) {
			continue // its claim would have come later
		}
		did, err := st.endUnknown(ctx, id, u, recoverer, why)
		if err != nil {
			return deliveries, err
		}
		if did { // otherwise its claim alone was lost
			deliveries++
		}
	}
	for _, gap := range gaps {
		if _, err := st.endUnknown(ctx, gap.ID, Unfinished{Number: gap.N}, recoverer, why); err != nil {
			return deliveries, err
		}
	}
	return deliveries, nil
}

// Keyless is what a damaged store has lost with pages of keys (Session.Lost).
type Keyless struct {
	Sessions    int // for which the store no longer knows whom they are about
	Closed      int // of these, those that could still be completed
	Undelivered int // and those whose callbacks have not ended: dispatchers end them, and send nothing
}

// CloseKeyless closes the sessions that have lost their keys and could still be completed, and counts what
// else was lost with keys. It is for a store that is not served. A repeat is harmless, and counts what is
// left. Its errors are those of Unfinished, and natsconf's.
func (st *Recovery) CloseKeyless(ctx context.Context) (k Keyless, err error) {
	lost, err := st.keyless(ctx)
	if err != nil {
		return k, err
	}
	erased, err := st.Erased(ctx) // their outcomes stay, and are not read
	if err != nil {
		return k, err
	}
	maps.DeleteFunc(lost, func(id sessions.ID, _ sessions.Session) bool { return erased[id] })
	unfinished, _, err := st.Unfinished(ctx, 1, nil)
	if err != nil {
		return k, err
	}
	k.Sessions = len(lost)
	for id, s := range lost {
		if _, open := unfinished[id]; open {
			k.Undelivered++
		}
		if !st.Now().Before(s.ExpiresAt) {
			continue
		}
		did, err := st.closeLost(ctx, s)
		if err != nil {
			return k, err
		}
		if did {
			k.Closed++
		}
	}
	return k, nil
}

// keyless returns the sessions that have lost their keys.
func (st *Recovery) keyless(ctx context.Context) (map[sessions.ID]sessions.Session, error) {
	lost := map[sessions.ID]sessions.Session{}
	take := func(id sessions.ID, r *records.SessionRecord, err error) error {
		if err != nil || r == nil {
			return err
		}
		s, err := st.OpenRecord(ctx, id, *r)
		if s.Lost {
			lost[id] = s
		}
		if errors.Is(err, records.ErrErased) || errors.Is(err, facts.ErrUnreadable) {
			return nil
		}
		return err
	}
	stream, subject := topology.BucketStream(topology.BucketSessions),
		topology.BucketSubject(topology.BucketSessions, ">")
	err := st.EachRecord(ctx, stream, subject, take)
	if err == nil { // outcomes outlive their records
		err = st.EachRecord(ctx, topology.StreamCompletions, records.CompletionSubject("*"), take)
	}
	return lost, err
}

// maybeCompleted returns the sessions that could be completed between two instants.
func (st *Recovery) maybeCompleted(ctx context.Context, from, to time.Time) (all []sessions.Session,
	err error) {
	stream, subject := topology.BucketStream(topology.BucketSessions),
		topology.BucketSubject(topology.BucketSessions, ">")
	err = st.EachRecord(ctx, stream, subject, func(id sessions.ID, r *records.SessionRecord,
		err error) error {
		if err != nil || r == nil || r.CreatedAt.Before(from.Add(-sessions.Lifetime)) || !to.IsZero() &&
			r.CreatedAt.After(to) {
			return err
		}
		s, err := st.OpenRecord(ctx, id, *r)
		if errors.Is(err, records.ErrErased) {
			return nil // it is not completed any more
		}
		all = append(all, s)
		return err
	})
	return all, err
}

// gaps returns the attempts that lack a claim or a result which was there before a later fact. Attempts are
// read by number, up to the first without a claim: what comes after a gap would count as never made, and
// would be made again. A session without an outcome, as after its age, has no delivery.
func (st *Recovery) gaps(ctx context.Context) (gaps []facts.Key, err error) {
	_, last, err := st.Conn.Bounds(ctx, topology.StreamCompletions)
	if err != nil {
		return nil, err
	}
	seen := map[sessions.ID]int{} // how many claims and results of each there were by its last fact
	err = st.Conn.Pages(ctx, topology.StreamCompletions, ">", 1, last, func(msgs []jetstream.Msg) error {
		for _, m := range msgs {
			p, ok := facts.ParseSubject(m.Subject())
			if !ok {
				continue
			}
			before, after := 2*p.N-2, 2*p.N-2 // claims and results, with this fact
			switch p.Kind {
			case "completion":
				seen[p.ID] = 0
				continue
			case "claim":
				after = before + 1
			case "result":
				before, after = before+1, before+2
			}
			have, completed := seen[p.ID]
			if !completed || before > have+1 && errors.Is(read(p, m.Data()), facts.ErrUnreadable) {
				continue // what cannot be read shows no more than its own attempt
			}
			for n := have/2 + 1; n <= (before+1)/2; n++ {
				gaps = append(gaps, facts.Key{ID: p.ID, N: n})
			}
			seen[p.ID] = max(have, after)
		}
		return nil
	})
	return gaps, err
}

// read returns why a fact of an attempt cannot be read.
func read(p facts.Key, data []byte) (err error) {
	switch p.Kind {
	case "claim":
		_, err = records.DecodeClaim(p.ID, p.N, data)
	case "result":
		_, err = records.DecodeResult(p.ID, p.N, data)
	case "resend":
		_, err = records.DecodeResend(p.ID, p.N, data)
	}
	return err
}

// closeLost writes the end of a session that has none.
func (st *Recovery) closeLost(ctx context.Context, s sessions.Session) (did bool, err error) {
	c := sessions.Completion{
		Session: s, Outcome: sessions.Outcome{State: sessions.Expired,
			Reason: sessions.LostReason}, CompletedAt: st.Instant(),
	}
	with, err := st.SealerOf(ctx, s.SealedUnder)
	if err != nil && !s.Lost {
		return false, err
	}
	data, err := records.EncodeCompletion(c, with)
	if err != nil {
		return false, fmt.Errorf("encode completion: %w", err)
	}
	existing, err := st.Once(ctx, records.Write{
		Writer: st.Completions, Subject: records.CompletionSubject(s.ID), Data: data,
	})
	if existing != nil {
		return false, nil // it has an outcome
	}
	return err == nil, err
}
