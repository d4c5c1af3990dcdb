package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/edge/account"
	"verifyd/natsconf"
	"verifyd/natsconf/carry"
	"verifyd/natsconf/crashpoint"
	"verifyd/sessions"
)

const (
	// leaveFor is how long a finishing move waits at least before it seals the old store, so that every dispatcher has seen that the
	// store is leaving: they look twice a second.
	leaveFor = 2 * time.Second
	// leaveLook is how far back claims are looked at that may be open: a claim can be settled by anybody after a whole attempt and 10 s,
	// and an attempt takes a minute at most.
	leaveLook = 3 * time.Minute
	// leavePoll lies between two looks.
	leavePoll = 200 * time.Millisecond
	// compareTries is how often a difference is looked at again: what was in flight while a stream was sealed may come after it, and
	// counters go on.
	compareTries = 5
)

// mover brings a store to another one.
type mover struct {
	from, to *store
	assets   []carry.Asset
	running  bool // somebody may be serving the store that is left
}

// errNotWhole is returned where both stores do not hold the same after a move.
var errNotWhole = errors.New("the stores differ; nothing was opened and nothing is lost: run the same command again, and where that does not help, empty the new store and move once more")

// pair marks the new store as being filled from the old one, or makes sure that it is.
func (m *mover) pair(ctx context.Context, where string) error {
	old, err := m.from.conn.Standing(ctx)
	if err != nil {
		return err
	}
	if old.State == "" && m.running {
		return usageError{errors.New("the service that runs on this store is of a build that cannot leave it: upgrade it first, then move")}
	}
	if old.State == "" {
		if old, err = m.from.conn.SetStanding(ctx, old, natsconf.StandingOpen, "", ""); err != nil {
			return err
		}
	}
	next, err := m.to.conn.Standing(ctx)
	if err != nil {
		return err
	}
	switch {
	case next.State == "":
		empty, err := m.to.empty(ctx, m.assets)
		if err != nil {
			return err
		}
		if !empty {
			return usageError{errors.New("the store to move to holds data already: name an empty one")}
		}
		_, err = m.to.conn.SetStanding(ctx, next, natsconf.StandingFilling, old.Store, where)
		return err
	case next.Other != old.Store:
		return usageError{fmt.Errorf("the store to move to is being filled from another one (%s): name an empty one", next.Where)}
	default:
		return nil
	}
}

// copyOnce brings what is new, asset by asset.
func (m *mover) copyOnce(ctx context.Context) ([]carry.Report, error) {
	skip, err := m.from.staysBehind(ctx)
	if err != nil {
		return nil, err
	}
	var reports []carry.Report
	for _, a := range m.assets {
		r, err := carry.Copy(ctx, m.from.conn, m.to.conn, a, skip)
		if err != nil {
			return nil, err
		}
		reports = append(reports, r)
	}
	return reports, nil
}

// compare compares both sides as they stand.
func (m *mover) compare(ctx context.Context) (all []carry.Comparison, equal bool, err error) {
	skip, err := m.from.staysBehind(ctx)
	if err != nil {
		return nil, false, err
	}
	equal = true
	for _, a := range m.assets {
		c, err := carry.Compare(ctx, m.from.conn, m.to.conn, a, skip)
		if err != nil {
			return nil, false, err
		}
		equal = equal && c.Equal()
		all = append(all, c)
	}
	return all, equal, nil
}

// leave takes the old store out of service: first no delivery begins any more, while sessions are still started and completed; then,
// when no claim is open, nothing is written any more. From then on the move can only be finished. It gives the standing that the rest
// rests on: who changed it meanwhile, to take the store back or to move it elsewhere, has ended this run.
func (m *mover) leave(ctx context.Context, where string) (old natsconf.Standing, err error) {
	if old, err = m.from.conn.Standing(ctx); err != nil {
		return old, err
	}
	next, err := m.to.conn.Standing(ctx)
	if err != nil {
		return old, err
	}
	if old.State != natsconf.StandingSealing {
		if old, err = m.beforeSeal(ctx, old, next, where); err != nil {
			return old, err
		}
	}
	if old.State != natsconf.StandingSealing || old.Other != next.Store {
		// Also a second try with another new store: none is open before this one has left.
		if old, err = m.from.conn.SetStanding(ctx, old, natsconf.StandingSealing, next.Store, where); err != nil {
			return old, err
		}
	}
	if err := m.from.conn.Seal(ctx, carry.Sealable(m.assets)...); err != nil {
		return old, err
	}
	crashpoint.Reach(crashpoint.MoveSealed)
	return old, nil
}

// beforeSeal has the dispatchers stop and waits for what they had begun. Until the seal the store can be taken back.
func (m *mover) beforeSeal(ctx context.Context, old, next natsconf.Standing, where string) (_ natsconf.Standing, err error) {
	if old.State != natsconf.StandingLeaving || old.Other != next.Store {
		if old, err = m.from.conn.SetStanding(ctx, old, natsconf.StandingLeaving, next.Store, where); err != nil {
			return old, err
		}
	}
	crashpoint.Reach(crashpoint.MoveLeaving)
	if m.running {
		err = m.awaitClaims(ctx)
	}
	return old, err
}

// awaitClaims waits until no claim is open that its owner may still be sending under: after the seal its result could not be stored, and
// the new store would have to call it unknown.
func (m *mover) awaitClaims(ctx context.Context) error {
	reader, begun := m.from.reader(), time.Now()
	next, err := m.from.conn.SequenceAt(ctx, natsconf.StreamCompletions, begun.Add(-leaveLook))
	if err != nil {
		return err
	}
	tick := time.NewTicker(leavePoll)
	defer tick.Stop()
	var open map[sessions.ID]sessions.Unfinished
	for {
		if open, next, err = reader.Unfinished(ctx, next, open); err != nil {
			return err
		}
		claimed := 0
		for _, u := range open {
			if u.Claimed && time.Now().Before(u.SettleAfter) {
				claimed++
			}
		}
		if claimed == 0 && time.Since(begun) > leaveFor {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// finish brings the rest, compares everything, and opens the new store.
func (m *mover) finish(ctx context.Context, where string) (all []carry.Comparison, err error) {
	old, err := m.from.conn.Standing(ctx)
	if err != nil {
		return nil, err
	}
	if old.State != natsconf.StandingLeft {
		if all, old, err = m.close(ctx, where); err != nil {
			return all, err
		}
	}
	crashpoint.Reach(crashpoint.MoveLeft)
	next, err := m.to.conn.Standing(ctx)
	if err != nil {
		return all, err
	}
	if old.Other != next.Store {
		return all, usageError{&natsconf.StandingError{Standing: old}}
	}
	_, err = m.to.conn.SetStanding(ctx, next, natsconf.StandingOpen, "", "")
	return all, err
}

// close brings the rest and closes the old store for good, once both hold the same.
func (m *mover) close(ctx context.Context, where string) (all []carry.Comparison, old natsconf.Standing, err error) {
	if old, err = m.leave(ctx, where); err != nil {
		return nil, old, err
	}
	if all, err = m.bringRest(ctx); err != nil {
		return all, old, err
	}
	crashpoint.Reach(crashpoint.MoveCompared)
	if err := acknowledgeEnded(ctx, m.to); err != nil {
		return all, old, err
	}
	old, err = m.from.conn.SetStanding(ctx, old, natsconf.StandingLeft, old.Other, where)
	return all, old, err
}

// bringRest copies until both sides are equal. The old store takes nothing any more.
func (m *mover) bringRest(ctx context.Context) (all []carry.Comparison, err error) {
	for range compareTries {
		if _, err := m.copyOnce(ctx); err != nil {
			return nil, err
		}
		var equal bool
		if all, equal, err = m.compare(ctx); err == nil && !equal {
			equal, err = m.catchUp(ctx, all)
		}
		if err != nil || equal {
			return all, err
		}
		if err := m.bringAgain(ctx, all); err != nil {
			return all, err
		}
	}
	return all, errNotWhole
}

// catchUp brings counters again that differ, and says whether everything is equal then. A counter stream cannot be sealed, and what is
// counted of those who are refused is stored every few seconds: on a large store once in each whole comparison, between two of these never.
func (m *mover) catchUp(ctx context.Context, all []carry.Comparison) (equal bool, err error) {
	equal = true
	for i, a := range m.assets { // as all
		for try := 0; a.Counts() && !all[i].Equal() && try < compareTries; try++ {
			if _, err = carry.Copy(ctx, m.from.conn, m.to.conn, a, nil); err != nil {
				return false, err
			}
			if all[i], err = carry.Compare(ctx, m.from.conn, m.to.conn, a, nil); err != nil {
				return false, err
			}
		}
		equal = equal && all[i].Equal()
	}
	return equal, nil
}

// bringAgain brings those assets anew that differ because the old store has taken away what was brought.
func (m *mover) bringAgain(ctx context.Context, all []carry.Comparison) error {
	skip, err := m.from.staysBehind(ctx)
	if err != nil {
		return err
	}
	for i, c := range all { // as m.assets
		if c.Equal() {
			continue
		}
		if err := carry.Again(ctx, m.from.conn, m.to.conn, m.assets[i], skip); err != nil {
			return err
		}
	}
	return nil
}

// acknowledgeEnded acknowledges, of a store that nobody serves, what is not to be delivered any more, so that its dispatchers need not
// look at each of its outcomes. It is a hint: the facts decide.
func acknowledgeEnded(ctx context.Context, st *store) error {
	open, _, err := st.reader().Unfinished(ctx, 1, nil)
	if err != nil {
		return err
	}
	return st.conn.Acknowledge(ctx, natsconf.DispatcherConsumers()[0], func(m jetstream.Msg) bool {
		_, unfinished := open[sessions.OfFact(m.Subject())]
		return !unfinished
	})
}

// abortMove takes a store back that a move was about to leave. A move that is under way notices before it seals anything.
func abortMove(ctx context.Context, from *store) error {
	old, err := from.conn.Standing(ctx)
	if err != nil {
		return err
	}
	if old.State == natsconf.StandingSealing || old.State == natsconf.StandingLeft {
		return usageError{&natsconf.StandingError{Standing: old}}
	}
	if old.State != natsconf.StandingLeaving {
		return usageError{errors.New("this store is not being left; there is nothing to take back")}
	}
	_, err = from.conn.SetStanding(ctx, old, natsconf.StandingOpen, "", "")
	return err
}

// staysBehind says what is not carried: each store has its own check of the master key, and the facts of erased sessions stay.
func (s *store) staysBehind(ctx context.Context) (carry.Skip, error) {
	erased, err := s.reader().Erased(ctx)
	if err != nil {
		return nil, err
	}
	return func(stream, subject string) bool {
		switch stream {
		case natsconf.BucketStream(natsconf.BucketAccounts):
			return subject == account.MasterKeySubject()
		case natsconf.StreamCompletions:
			return erased[sessions.OfFact(subject)]
		default:
			return false
		}
	}, nil
}

// empty says whether a store holds nothing but its own check of the master key.
func (s *store) empty(ctx context.Context, assets []carry.Asset) (bool, error) {
	skip, err := s.staysBehind(ctx)
	if err != nil {
		return false, err
	}
	return carry.Empty(ctx, s.conn, assets, skip)
}

// tellBrought prints what a run has brought.
func tellBrought(w io.Writer, reports []carry.Report) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "ASSET\tBROUGHT NOW")
	for _, r := range reports {
		_, _ = fmt.Fprintf(t, "%s\t%d\n", r.Stream, r.Brought)
	}
	_ = t.Flush()
}

// tellCompared prints what stands on both sides.
func tellCompared(w io.Writer, all []carry.Comparison) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "ASSET\tOLD STORE\tNEW STORE\tDIGEST")
	for _, c := range all {
		digest := c.To.Digest()[:16]
		if !c.Equal() {
			digest = "differs"
		}
		_, _ = fmt.Fprintf(t, "%s\t%d\t%d\t%s\n", c.Stream, c.From.Count, c.To.Count, digest)
	}
	_ = t.Flush()
}
