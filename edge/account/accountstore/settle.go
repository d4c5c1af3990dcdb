package accountstore

import (
	"context"
	"time"

	"github.com/rs/zerolog"
)

const (
	// settleEvery is how often accounts, keys and grants are checked: no person waits for it.
	settleEvery = 24 * time.Hour
	// dueEvery is how much later than promised an account may be deleted. A check costs one read of all
	// accounts.
	dueEvery = 10 * time.Minute
)

// Settler is the actor that checks all accounts, keys and grants, at the start of a service and once a day,
// and makes sure that every stored change is in the audit log: a process may have died between a change and
// its record, and the entry may never be changed again. It also removes the secrets of deleted accounts from
// the store once they sign nothing any more, and deletes accounts whose grace is over. Each edge does so;
// work that two of them do at once is done once.
type Settler struct {
	store *Store
	log   zerolog.Logger
}

// NewSettler returns the actor.
func NewSettler(s *Store, log zerolog.Logger) *Settler { return &Settler{store: s, log: log} }

// Serve settles until ctx ends. A failed run is repeated a day later, or at the next start.
func (s *Settler) Serve(ctx context.Context) error {
	again := time.NewTicker(settleEvery)
	defer again.Stop()
	due := time.NewTicker(dueEvery)
	defer due.Stop()
	s.settle(ctx)
	for {
		select {
		case <-again.C:
			s.settle(ctx)
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

func (s *Settler) settle(ctx context.Context) {
	if err := s.store.Settle(ctx); err != nil && ctx.Err() == nil {
		s.log.Warn().Err(err).Msg("the audit log could not be compared with the accounts; it is within a " +
			"day, or at the next start")
	}
}

// String names the actor in the supervisor's log.
func (s *Settler) String() string { return "audit settler" }

// Settle writes the records that are missing in the audit log, and does what EndDue does. A repeat is
// harmless. It reads every account, key and grant, and one message of the log for each.
func (s *Store) Settle(ctx context.Context) error {
	if err := s.EndDue(ctx); err != nil {
		return err
	}
	accounts, err := s.records.every(ctx)
	if err != nil {
		return err
	}
	keys, err := s.keys.every(ctx)
	if err != nil {
		return err
	}
	for _, a := range accounts {
		if err := s.log.Settle(ctx, a.Last); err != nil {
			return err
		}
		if err := s.forget(ctx, a); err != nil {
			return err
		}
		if a.DeletedAt.IsZero() {
			continue
		}
		if _, err := s.endKeys(ctx, grace, a.ID, false); err != nil { // those that a crash left
			return err
		}
	}
	for _, k := range keys {
		if err := s.log.Settle(ctx, k.Last); err != nil {
			return err
		}
	}
	return s.grants.Settle(ctx)
}
