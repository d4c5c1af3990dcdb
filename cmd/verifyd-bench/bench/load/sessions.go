package load

import (
	"context"
	"sync"

	"verifyd/natsconf"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/store"
)

// fillers is how many callers prepare a store concurrently: as many as one batch takes.
const fillers = 256

// Verified is the outcome that every session gets.
var Verified = sessions.Outcome{State: sessions.Verified, Network: "default"}

// Sessions is the domain's store on a connection, with the writers it needs: sessions without HTTP.
type Sessions struct {
	*store.Store

	stop func()
}

// OpenSessions runs the writers until Close. sync is the sync mode of the store.
func OpenSessions(conn *natsconf.Conn, key secretbox.Key, sync string) *Sessions {
	newWriter := natsconf.NewWriter
	if sync == string(embedded.SyncInterval) { // as in the service
		newWriter = natsconf.NewSingleWriter
	}
	pending := newWriter(conn, topology.BucketStream(topology.BucketSessions))
	completions := newWriter(conn, topology.StreamCompletions)
	return &Sessions{
		Store: store.New(store.Config{
			Conn: conn, Pending: pending, Completions: completions, Key: key,
		}),
		stop: Serve(pending, completions),
	}
}

// Close stops the writers and waits for them. The connection stays.
func (s *Sessions) Close() { s.stop() }

// CreateAll starts n sessions, many concurrently, so that they share batches.
func (s *Sessions) CreateAll(ctx context.Context, n int, account string,
	callbackURL func(i int) string) ([]sessions.ID, error) {
	ids := make([]sessions.ID, n)
	err := InParallel(ctx, fillers, n, func(ctx context.Context, i int) error {
		made, _, err := s.Create(ctx, sessions.Request{
			Account: account, Key: "key_bench", Platform: Platform, PlatformUserID: PlatformUserID,
			GuildID: GuildID, CallbackURL: callbackURL(i),
		})
		ids[i] = made.ID
		return err
	})
	return ids, err
}

// ReadAndComplete completes a session as the sign-in page does: it is read first.
func (s *Sessions) ReadAndComplete(ctx context.Context, id sessions.ID) error {
	open, err := s.ReadOpen(ctx, id)
	if err != nil {
		return err
	}
	_, err = s.Complete(ctx, open, Verified)
	return err
}

// CompleteAll completes the sessions, many concurrently.
func (s *Sessions) CompleteAll(ctx context.Context, ids []sessions.ID) error {
	return InParallel(ctx, fillers, len(ids), func(ctx context.Context, i int) error {
		return s.ReadAndComplete(ctx, ids[i])
	})
}

// Serve runs actors of the service in this process until stop is called, which waits for them. A failure ends
// the actor; calls of it then fail, and are counted by the caller.
func Serve(actors ...interface {
	Serve(ctx context.Context) error
}) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, a := range actors {
		wg.Go(func() { _ = a.Serve(ctx) })
	}
	return func() {
		cancel()
		wg.Wait()
	}
}
