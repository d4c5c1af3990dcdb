package recovery

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/records"
)

// recoverer is the writer of the claims and results of CloseLost.
const recoverer = "recover"

// CloseLost ends sessions and deliveries whose end a damaged store no longer knows, because facts that were
// stored between two instants of the store are lost; a zero instant is unbounded. No delivery of an outcome
// from before the later instant is due then: attempts of which a claim or a result is missing become unknown,
// and so does a delivery that had not ended, since its next claim may be among the lost facts. Sessions that
// may have been completed in between, and of which no outcome is left, are closed, so that they are not
// completed again. It is for a store that is not served. It returns how many deliveries have ended as unknown
// by that, and how many sessions it has closed. A repeat is harmless. Its errors are those of Unfinished, and
// natsconf's.
func (st *Recovery) CloseLost(ctx context.Context, from, to time.Time) (deliveries, closed int, err error) {
	const why = "the store was damaged, and whether this callback was sent is among what it lost"
	if deliveries, err = st.closeUnknown(ctx, to, recoverer, why); err != nil {
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
	unfinished, err := st.Unfinished(ctx)
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
	err := st.eachSession(ctx, take)
	if err == nil { // outcomes outlive their records
		err = st.EachRecord(ctx, topology.StreamCompletions, records.CompletionSubject("*"), take)
	}
	return lost, err
}

// eachSession reads the records of all sessions, as EachRecord does.
func (st *Recovery) eachSession(ctx context.Context,
	do func(sessions.ID, *records.SessionRecord, error) error) error {
	return st.EachRecord(ctx, topology.BucketStream(topology.BucketSessions), records.AnyRecordSubject("*"),
		do)
}

// maybeCompleted returns the sessions that could be completed between two instants of the store.
func (st *Recovery) maybeCompleted(ctx context.Context, from, to time.Time) (all []sessions.Session,
	err error) {
	err = st.eachSession(ctx, func(id sessions.ID, r *records.SessionRecord, err error) error {
		if err != nil || r == nil || r.CreatedAt.Before(from.Add(-sessions.Lifetime-records.ClockSkew)) ||
			!to.IsZero() && r.CreatedAt.After(to.Add(records.ClockSkew)) {
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
