package sessions

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
)

// recoverer is who wrote the claims and results of CloseLost.
const recoverer = "recover"

// CloseLost ends what a damaged store no longer knows the end of, where facts that were stored between two
// instants are lost; a zero instant is unbounded. Deliveries of outcomes from before the later one that have
// not come to an end are unknown: their claims may be among what is lost. Sessions that may have been
// completed in between, and of which no outcome is left, are closed, so that they are not completed again.
// It is for a store that nobody serves, and returns how many there were of each. A repeat is harmless. Its
// errors are those of Unfinished, and natsconf's.
func (st *Store) CloseLost(ctx context.Context, from, to time.Time) (deliveries, closed int, err error) {
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

// endLost ends the deliveries whose claims may be lost.
func (st *Store) endLost(ctx context.Context, to time.Time) (deliveries int, err error) {
	if err := st.restoreClaims(ctx); err != nil {
		return 0, err
	}
	unfinished, _, err := st.Unfinished(ctx, 1, nil)
	if err != nil {
		return 0, err
	}
	for id, u := range unfinished {
		if !to.IsZero() && u.CompletedAt.After(to) {
			continue // its claim would have come later
		}
		if err := st.endUnknown(ctx, id, u, recoverer,
			"the store was damaged, and whether this callback was sent is among what it lost"); err != nil {
			return deliveries, err
		}
		deliveries++
	}
	return deliveries, nil
}

// Keyless is what a damaged store has lost with pages of keys (Session.Lost).
type Keyless struct {
	Sessions    int // of which the store no longer knows whom they are about
	Closed      int // of these, those that could still be completed
	Undelivered int // and those whose callbacks have not ended: dispatchers end them, and send nothing
}

// CloseKeyless closes the sessions that have lost their keys and could still be completed, and counts what
// else was lost with keys. It is for a store that nobody serves. A repeat is harmless, and counts what is
// left. Its errors are those of Unfinished, and natsconf's.
func (st *Store) CloseKeyless(ctx context.Context) (k Keyless, err error) {
	lost, err := st.keyless(ctx)
	if err != nil {
		return k, err
	}
	erased, err := st.Erased(ctx) // their outcomes stay, and nobody reads them
	if err != nil {
		return k, err
	}
	maps.DeleteFunc(lost, func(id ID, _ Session) bool { return erased[id] })
	unfinished, _, err := st.Unfinished(ctx, 1, nil)
	if err != nil {
		return k, err
	}
	k.Sessions = len(lost)
	for id, s := range lost {
		if _, open := unfinished[id]; open {
			k.Undelivered++
		}
		if !st.now().Before(s.ExpiresAt) {
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
func (st *Store) keyless(ctx context.Context) (map[ID]Session, error) {
	lost := map[ID]Session{}
	take := func(id ID, r *record, err error) error {
		if err != nil || r == nil {
			return err
		}
		s, err := st.openRecord(ctx, id, *r)
		if s.Lost {
			lost[id] = s
		}
		if errors.Is(err, errErased) || errors.Is(err, ErrUnreadable) {
			return nil
		}
		return err
	}
	stream, records := natsconf.BucketStream(natsconf.BucketSessions),
		natsconf.BucketSubject(natsconf.BucketSessions, ">")
	err := st.eachRecord(ctx, stream, records, take)
	if err == nil { // outcomes outlive their records
		err = st.eachRecord(ctx, natsconf.StreamCompletions, completionSubject("*"), take)
	}
	return lost, err
}

// maybeCompleted returns the sessions that could be completed between two instants.
func (st *Store) maybeCompleted(ctx context.Context, from, to time.Time) (all []Session, err error) {
	stream, records := natsconf.BucketStream(natsconf.BucketSessions),
		natsconf.BucketSubject(natsconf.BucketSessions, ">")
	err = st.eachRecord(ctx, stream, records, func(id ID, r *record, err error) error {
		if err != nil || r == nil || r.CreatedAt.Before(from.Add(-Lifetime)) || !to.IsZero() &&
			r.CreatedAt.After(to) {
			return err
		}
		s, err := st.openRecord(ctx, id, *r)
		if errors.Is(err, errErased) {
			return nil // nobody completes it any more
		}
		all = append(all, s)
		return err
	})
	return all, err
}

// restoreClaims writes the missing claims of attempts that have a result: without it an attempt counts as
// never made, and would be made again.
func (st *Store) restoreClaims(ctx context.Context) error {
	_, last, err := st.conn.Bounds(ctx, natsconf.StreamCompletions)
	if err != nil {
		return err
	}
	claimed, without := map[factKey]bool{}, map[factKey]bool{}
	err = st.conn.Pages(ctx, natsconf.StreamCompletions, ">", 1, last, func(msgs []jetstream.Msg) error {
		for _, m := range msgs {
			p, ok := parseFactSubject(m.Subject())
			claim := factKey{kind: "claim", id: p.id, n: p.n}
			switch {
			case ok && p.kind == "claim":
				claimed[claim] = true
			case ok && p.kind == "result" && !claimed[claim]: // a claim is always written before its result
				without[claim] = true
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for p := range without {
		err := st.Claim(ctx, NewClaim(p.id, p.n, recoverer, st.instant(), 0, 0))
		if err != nil && !errors.Is(err, ErrClaimed) {
			return err
		}
	}
	return nil
}

// closeLost writes the end of a session that has none.
func (st *Store) closeLost(ctx context.Context, s Session) (did bool, err error) {
	c := Completion{
		Session: s, Outcome: Outcome{State: Expired, Reason: LostReason}, CompletedAt: st.instant(),
	}
	with, err := st.sealer(ctx, s.key)
	if err != nil && !s.Lost {
		return false, err
	}
	data, err := encodeCompletion(c, with)
	if err != nil {
		return false, fmt.Errorf("encode completion: %w", err)
	}
	existing, err := st.once(ctx, write{
		writer: st.completions, stream: natsconf.StreamCompletions, subject: completionSubject(s.ID),
		data: data,
	})
	if existing != nil {
		return false, nil // it has an outcome
	}
	return err == nil, err
}
