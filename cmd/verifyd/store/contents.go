package store

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"verifyd/cmd/verifyd/supervise"
	"verifyd/natsconf"
	"verifyd/natsconf/storestate"
	"verifyd/natsconf/topology"
	"verifyd/natsconf/transfer"
	"verifyd/sessions/facts"
	sessionstore "verifyd/sessions/store"
)

// Reader returns a read-only view of the sessions of the store.
func (s *Store) Reader() *sessionstore.Store {
	return sessionstore.New(sessionstore.Config{Conn: s.Conn, Key: s.Ring})
}

// StaysBehind reports what is not copied: each store has its own check of the master key, and the facts of
// erased sessions are left out.
func (s *Store) StaysBehind(ctx context.Context) (transfer.Skip, error) {
	erased, err := s.Reader().Erased(ctx)
	if err != nil {
		return nil, err
	}
	return func(stream, subject string) bool {
		switch stream {
		case topology.BucketStream(topology.BucketAccounts):
			return subject == storestate.CheckSubject()
		case topology.StreamCompletions:
			return erased[facts.OfFact(subject)]
		default:
			return false
		}
	}, nil
}

// Empty reports whether a store holds nothing but its own check of the master key.
func (s *Store) Empty(ctx context.Context, assets []transfer.Asset) (bool, error) {
	skip, err := s.StaysBehind(ctx)
	if err != nil {
		return false, err
	}
	return transfer.Empty(ctx, s.Conn, assets, skip)
}

// Assets lists all assets of a store.
func Assets() []transfer.Asset {
	return transfer.Assets(topology.New(topology.Options{}))
}

// WithFacts runs the writers of facts for a command, while do works with them.
func (s *Store) WithFacts(do func(*sessionstore.Store) error) error {
	completions := natsconf.NewWriter(s.Conn, topology.StreamCompletions)
	pending := natsconf.NewWriter(s.Conn, topology.BucketStream(topology.BucketSessions))
	writing := supervise.Start("command", zerolog.Nop(), supervise.New("completions writer", completions),
		supervise.New("sessions writer", pending))
	defer writing.Stop()
	return do(sessionstore.New(sessionstore.Config{
		Conn: s.Conn, Completions: completions, Pending: pending, Key: s.Ring,
	}))
}

// AcknowledgeEnded acknowledges, in a store without a running service, the outcomes that are not to be
// delivered any more, so that dispatchers need not read each of them. It is a hint: the facts decide.
func (s *Store) AcknowledgeEnded(ctx context.Context) error {
	open, err := s.Reader().Unfinished(ctx)
	if err != nil {
		return err
	}
	return s.Conn.Acknowledge(ctx, topology.DispatcherConsumers()[0], func(m jetstream.Msg) bool {
		_, unfinished := open[facts.OfFact(m.Subject())]
		return !unfinished
	})
}
