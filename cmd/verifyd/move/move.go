// Package move copies a store to another one while its service runs. Each run copies what is new. The last
// one takes the old store out of service, copies the rest, compares everything, and opens the new one.
//
// No session is served by both stores: the old one is sealed before the new one opens, and until the seal a
// move can be aborted.
package move

import (
	"context"
	"errors"
	"fmt"
	"time"

	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/store"
	"verifyd/natsconf/crashpoint"
	"verifyd/natsconf/storestate"
	"verifyd/natsconf/topology"
	"verifyd/natsconf/transfer"
	"verifyd/sessions/facts"
)

const (
	// leaveFor is how long a finishing move waits at least before it seals the old store, so that every
	// dispatcher has seen that the store is draining: they check twice a second.
	leaveFor = 2 * time.Second
	// leaveLook is how far back open claims are searched for: any process can settle a claim after a whole
	// attempt and 10 s, and an attempt takes at most a minute.
	leaveLook = 3 * time.Minute
	// leavePoll is the interval between two looks.
	leavePoll = 200 * time.Millisecond
	// compareTries is how often a difference is checked again: what was in flight while a stream was sealed
	// may arrive after it, and counters continue.
	compareTries = 5
)

// Move copies a store to another one.
type Move struct {
	From, To *store.Store
	Assets   []transfer.Asset
	Running  bool // a service may be running on the old store
}

// errStoresDiffer is returned if both stores do not hold the same after a move.
var errStoresDiffer = errors.New(
	"the stores differ; nothing was opened and nothing is lost: run the same command again; if " +
		"that does not help, empty the new store and move again")

// Pair marks the new store as being filled from the old one, or makes sure that it is.
func (m *Move) Pair(ctx context.Context, where string) error {
	old, err := storestate.Read(ctx, m.From.Conn)
	if err != nil {
		return err
	}
	if old.State == "" && m.Running {
		return config.Usage(errors.New(
			"the service that runs on this store is too old to leave it: upgrade it first, then move"))
	}
	if old.State == "" {
		if old, err = storestate.Set(ctx, m.From.Conn, old, storestate.StateOpen, "", ""); err != nil {
			return err
		}
	}
	next, err := storestate.Read(ctx, m.To.Conn)
	if err != nil {
		return err
	}
	switch {
	case next.State == "":
		empty, err := m.To.Empty(ctx, m.Assets)
		if err != nil {
			return err
		}
		if !empty {
			return config.Usage(errors.New("the store to move to already holds data: name an empty one"))
		}
		_, err = storestate.Set(ctx, m.To.Conn, next, storestate.StateFilling, old.Store, where)
		return err
	case next.Other != old.Store:
		return config.Usage(fmt.Errorf(
			"the store to move to is being filled from another one (%s): name an empty one", next.Where))
	default:
		return nil
	}
}

// CopyOnce copies what is new, asset by asset.
func (m *Move) CopyOnce(ctx context.Context) ([]transfer.Report, error) {
	skip, err := m.From.StaysBehind(ctx)
	if err != nil {
		return nil, err
	}
	var reports []transfer.Report
	for _, a := range m.Assets {
		r, err := transfer.Copy(ctx, m.From.Conn, m.To.Conn, a, skip)
		if err != nil {
			return nil, err
		}
		reports = append(reports, r)
	}
	return reports, nil
}

// Compare compares the current contents of both stores.
func (m *Move) Compare(ctx context.Context) (all []transfer.Comparison, equal bool, err error) {
	skip, err := m.From.StaysBehind(ctx)
	if err != nil {
		return nil, false, err
	}
	equal = true
	for _, a := range m.Assets {
		c, err := transfer.Compare(ctx, m.From.Conn, m.To.Conn, a, skip)
		if err != nil {
			return nil, false, err
		}
		equal = equal && c.Equal()
		all = append(all, c)
	}
	return all, equal, nil
}

// leave takes the old store out of service: first no new delivery begins, while sessions are still started
// and completed; then, when no claim is open, nothing is written any more. From then on the move can only be
// finished. It returns the state that the remaining steps depend on: if another process changes it meanwhile,
// to abort the move or to move the store elsewhere, this run ends.
func (m *Move) leave(ctx context.Context, where string) (old storestate.Record, err error) {
	if old, err = storestate.Read(ctx, m.From.Conn); err != nil {
		return old, err
	}
	next, err := storestate.Read(ctx, m.To.Conn)
	if err != nil {
		return old, err
	}
	if old.State != storestate.StateSealing {
		if old, err = m.beforeSeal(ctx, old, next, where); err != nil {
			return old, err
		}
	}
	if old.State != storestate.StateSealing || old.Other != next.Store {
		// This includes a second try with another new store: none is open before the old one is retired.
		if old, err = storestate.Set(ctx, m.From.Conn, old, storestate.StateSealing, next.Store,
			where); err != nil {
			return old, err
		}
	}
	if err := storestate.Seal(ctx, m.From.Conn, transfer.Sealable(m.Assets)...); err != nil {
		return old, err
	}
	crashpoint.Reach(crashpoint.MoveSealed)
	return old, nil
}

// beforeSeal makes the dispatchers stop and waits for what they have begun. Until the seal the move can be
// aborted.
func (m *Move) beforeSeal(ctx context.Context, old, next storestate.Record,
	where string) (_ storestate.Record, err error) {
	if old.State != storestate.StateDraining || old.Other != next.Store {
		if old, err = storestate.Set(ctx, m.From.Conn, old, storestate.StateDraining, next.Store,
			where); err != nil {
			return old, err
		}
	}
	crashpoint.Reach(crashpoint.MoveLeaving)
	if m.Running {
		err = m.awaitClaims(ctx)
	}
	return old, err
}

// awaitClaims waits until no claim is open whose owner may still be sending: after the seal its result could
// not be stored, and the new store would have to call it unknown.
func (m *Move) awaitClaims(ctx context.Context) error {
	reader, begun := m.From.Reader(), time.Now()
	next, err := m.From.Conn.SequenceAt(ctx, topology.StreamCompletions, begun.Add(-leaveLook))
	if err != nil {
		return err
	}
	tick := time.NewTicker(leavePoll)
	defer tick.Stop()
	var open map[facts.Key]time.Time
	for {
		if open, next, err = reader.OpenClaims(ctx, next, open); err != nil {
			return err
		}
		claimed := 0
		for _, settleAfter := range open {
			if m.From.Conn.Clock.Now().Before(settleAfter) {
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

// Ended reports whether this move has ended before. Its error is a usage error if the store to move to is in
// service without it.
func (m *Move) Ended(ctx context.Context) (bool, error) {
	next, err := storestate.Read(ctx, m.To.Conn)
	if err != nil || next.State != storestate.StateOpen {
		return false, err
	}
	old, err := storestate.Read(ctx, m.From.Conn)
	if err != nil {
		return false, err
	}
	if old.State != storestate.StateRetired || old.Other != next.Store {
		return false, config.Usage(
			fmt.Errorf("--to: that store is in service, and is not the one that this one was moved to; %w",
				&storestate.Error{Record: old}))
	}
	return true, nil
}

// NotFinished adds to an error the state of the old store, which a finish may have taken out of service.
func (m *Move) NotFinished(ctx context.Context, cause error) error {
	old, err := storestate.Read(context.WithoutCancel(ctx), m.From.Conn)
	if err != nil || errors.As(cause, new(*storestate.Error)) {
		return cause
	}
	if old.State == storestate.StateOpen {
		return fmt.Errorf("%w; the old store is in service as before", cause)
	}
	return fmt.Errorf("%w; %w", cause, &storestate.Error{Record: old})
}

// Finish copies the rest, compares everything, and opens the new store.
func (m *Move) Finish(ctx context.Context, where string) (all []transfer.Comparison, err error) {
	old, err := storestate.Read(ctx, m.From.Conn)
	if err != nil {
		return nil, err
	}
	if old.State != storestate.StateRetired {
		if all, old, err = m.close(ctx, where); err != nil {
			return all, err
		}
	}
	crashpoint.Reach(crashpoint.MoveLeft)
	next, err := storestate.Read(ctx, m.To.Conn)
	if err != nil {
		return all, err
	}
	if old.Other != next.Store {
		return all, config.Usage(&storestate.Error{Record: old})
	}
	_, err = storestate.Set(ctx, m.To.Conn, next, storestate.StateOpen, "", "")
	return all, err
}

// close copies the rest and closes the old store permanently, once both hold the same.
func (m *Move) close(ctx context.Context, where string) (all []transfer.Comparison, old storestate.Record,
	err error) {
	if old, err = m.leave(ctx, where); err != nil {
		return nil, old, err
	}
	if all, err = m.copyRest(ctx); err != nil {
		return all, old, err
	}
	crashpoint.Reach(crashpoint.MoveCompared)
	if err := m.To.Rebind(ctx); err != nil {
		return all, old, err
	}
	if err := m.To.AcknowledgeEnded(ctx); err != nil {
		return all, old, err
	}
	old, err = storestate.Set(ctx, m.From.Conn, old, storestate.StateRetired, old.Other, where)
	return all, old, err
}

// copyRest copies until both stores are equal. The old store accepts nothing any more.
func (m *Move) copyRest(ctx context.Context) (all []transfer.Comparison, err error) {
	for range compareTries {
		if _, err := m.CopyOnce(ctx); err != nil {
			return nil, err
		}
		var equal bool
		if all, equal, err = m.Compare(ctx); err == nil && !equal {
			equal, err = m.catchUp(ctx, all)
		}
		if err != nil || equal {
			return all, err
		}
		if err := m.copyAgain(ctx, all); err != nil {
			return all, err
		}
	}
	return all, errStoresDiffer
}

// catchUp copies the counters again that differ, and reports whether everything is equal then. A counter
// stream cannot be sealed, and the counts of refused requests are stored every few seconds: on a large store
// once in each whole comparison, but never between two of these.
func (m *Move) catchUp(ctx context.Context, all []transfer.Comparison) (equal bool, err error) {
	equal = true
	for i, a := range m.Assets { // as all
		for try := 0; a.Counts() && !all[i].Equal() && try < compareTries; try++ {
			if _, err = transfer.Copy(ctx, m.From.Conn, m.To.Conn, a, nil); err != nil {
				return false, err
			}
			if all[i], err = transfer.Compare(ctx, m.From.Conn, m.To.Conn, a, nil); err != nil {
				return false, err
			}
		}
		equal = equal && all[i].Equal()
	}
	return equal, nil
}

// copyAgain copies the assets again that differ because the old store has removed messages that were copied.
func (m *Move) copyAgain(ctx context.Context, all []transfer.Comparison) error {
	skip, err := m.From.StaysBehind(ctx)
	if err != nil {
		return err
	}
	for i, c := range all { // as m.assets
		if c.Equal() {
			continue
		}
		if err := transfer.Again(ctx, m.From.Conn, m.To.Conn, m.Assets[i], skip); err != nil {
			return err
		}
	}
	return nil
}

// Abort returns a store to service that a move was about to retire. A move in progress notices before it
// seals anything.
func Abort(ctx context.Context, from *store.Store) error {
	old, err := storestate.Read(ctx, from.Conn)
	if err != nil {
		return err
	}
	if old.State == storestate.StateSealing || old.State == storestate.StateRetired {
		return config.Usage(&storestate.Error{Record: old})
	}
	if old.State != storestate.StateDraining {
		return config.Usage(errors.New("this store is not being moved; there is nothing to abort"))
	}
	_, err = storestate.Set(ctx, from.Conn, old, storestate.StateOpen, "", "")
	return err
}
