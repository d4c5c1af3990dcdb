package accountstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"verifyd/edge/account/record"
)

const (
	// repairEvery is how often accounts, keys and grants are checked: no person waits for it.
	repairEvery = 24 * time.Hour
	// dueEvery is how much later than promised an account may be deleted. A check costs one read of all
	// accounts.
	dueEvery = 10 * time.Minute
)

// Repairer is the actor that checks all accounts, keys and grants, at the start of a service and once a day,
// and makes sure that every stored change is in the audit log: a process may have died between a change and
// its record, and the entry may never be changed again. It also removes the secrets of deleted accounts from
// the store once they sign nothing any more, and deletes accounts whose grace is over. Each edge does so;
// work that two of them do at once is done once.
type Repairer struct {
	store *Store
	log   zerolog.Logger
}

// NewRepairer returns the actor.
func NewRepairer(s *Store, log zerolog.Logger) *Repairer { return &Repairer{store: s, log: log} }

// Serve repairs until ctx ends. A failed run is repeated a day later, or at the next start.
func (s *Repairer) Serve(ctx context.Context) error {
	again := time.NewTicker(repairEvery)
	defer again.Stop()
	due := time.NewTicker(dueEvery)
	defer due.Stop()
	s.repair(ctx)
	for {
		select {
		case <-again.C:
			s.repair(ctx)
		case <-due.C:
			if err := s.store.EndDue(ctx); err != nil && ctx.Err() == nil {
				s.log.Warn().Err(err).Msg("accounts whose grace is over could not be deleted; that is " +
					"tried again in ten minutes")
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *Repairer) repair(ctx context.Context) {
	if err := s.store.Repair(ctx); err != nil && ctx.Err() == nil {
		s.log.Warn().Err(err).Msg("the audit log could not be compared with the accounts; it is within a " +
			"day, or at the next start")
	}
}

// String names the actor in the supervisor's log.
func (s *Repairer) String() string { return "account repairer" }

// Repair writes the records that are missing in the audit log, and does what EndDue does. A repeat is
// harmless. It reads every account, key and grant, and one message of the log for each. One that cannot be
// repaired is reported, and keeps no other one from it, unless the store is away.
func (s *Store) Repair(ctx context.Context) error {
	err := s.EndDue(ctx)
	accounts, aerr := s.listAccounts(ctx)
	keys, kerr := s.listKeys(ctx)
	err = errors.Join(err, aerr, kerr)
	for _, a := range accounts {
		if s.away(ctx, err) {
			return err
		}
		err = errors.Join(err, s.log.Repair(ctx, a.Last), s.forget(ctx, a))
		left := slices.ContainsFunc(keys, func(k record.Key) bool {
			return k.Account == a.ID && k.RevokedAt.IsZero()
		})
		if left && !a.DeletedAt.IsZero() { // by a crash
			_, kerr := s.endKeys(ctx, grace, a.ID, false)
			err = errors.Join(err, kerr)
		}
	}
	for _, k := range keys {
		if s.away(ctx, err) {
			return err
		}
		err = errors.Join(err, s.log.Repair(ctx, k.Last))
	}
	return errors.Join(err, s.grants.RepairLog(ctx))
}
