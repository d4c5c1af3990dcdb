// Package store opens the store of a process: the embedded server or the external ones, the topology, and the
// master key that belongs to it. It creates only what a service or a command is allowed to create.
package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/supervise"
	"verifyd/edge/account/accountstore"
	"verifyd/natsconf"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/provision"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/storestate"
	"verifyd/natsconf/topology"
)

const (
	// bootTimeout bounds the start: recovering a large store, a cluster electing its leaders.
	bootTimeout = time.Minute
	// endpointWait bounds how long a command waits for the running service that holds the data directory to
	// be reachable.
	endpointWait = 10 * time.Second
)

// Store is JetStream as a process reaches it, with the master keys that belong to it.
type Store struct {
	Conn     *natsconf.Conn
	Key      secretbox.Key   // the operator's: what leaves the store is sealed under it
	Ring     *secretbox.Ring // the store's keys up to that one: what is in the store is sealed under them
	Accounts *accountstore.Store
	Embedded *embedded.Server // nil if another process or a cluster runs the server
	Server   *supervise.Actor
	layer    *supervise.Layer
	DataDir  string             // of an embedded store
	Recovery *embedded.Recovery // of a store that was opened for it
}

// Purpose is what a store is opened for.
type Purpose int

// What a store may be opened for.
const (
	// ToServe: the service: it may update the topology, and the store has to be in service or new
	ToServe   Purpose = iota
	ToUse             // a command: it leaves the topology as it is, and creates no store
	ToBegin           // a command that may create a new store
	ToFill            // a move or a restore: the store has to be new, or one that is being filled
	ToRepeat          // a move that has ended, or nearly: the store may be open
	ToRecover         // a recovery: the store is damaged
)

// Admits returns why a store in this state may not be opened; nil if it may.
func (why Purpose) Admits(s storestate.Record) error {
	var admitted []storestate.State
	switch why {
	case ToServe:
		admitted = []storestate.State{"", storestate.StateOpen}
	case ToUse, ToBegin, ToRecover:
		admitted = []storestate.State{
			"", storestate.StateOpen, storestate.StateDraining, storestate.StateSealing,
			storestate.StateRetired,
		}
	case ToFill:
		admitted = []storestate.State{"", storestate.StateFilling}
	case ToRepeat:
		admitted = []storestate.State{storestate.StateFilling, storestate.StateOpen}
	}
	if slices.Contains(admitted, s.State) {
		return nil
	}
	return config.Usage(&storestate.Error{Record: s})
}

// Open starts the embedded server, or connects to the external one, and ensures the topology. Only a service
// may update it; a command leaves what is there. For an embedded store that another process holds the error
// is embedded.ErrLocked, and for one that this user must not open an *AccessError: nothing was written then.
func Open(ctx context.Context, c config.Store, log zerolog.Logger, why Purpose) (_ *Store, err error) {
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	s := &Store{}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if c.NATSURL == "" {
		err = s.openEmbedded(ctx, c, log, why)
	} else {
		s.Key, err = c.ExternalKey()
	}
	if err != nil {
		return nil, err
	}
	options := natsconf.ConnectOptions{
		URL: c.NATSURL, CredsFile: c.NATSCreds, RootCAs: c.NATSRoots, Name: "verifyd", Log: log,
		Now: c.MachineClock,
	}
	if s.Embedded != nil {
		options.Embedded = s.Embedded
	}
	s.Conn, err = natsconf.Connect(ctx, options)
	if err != nil {
		return nil, err
	}
	if c.NATSURL != "" && c.Topology.Replicas == 1 && why == ToServe {
		log.Warn().Msg("VERIFYD_REPLICAS=1 on an external server: what is acknowledged is as durable " +
			"as that server's own sync setting (2 minutes by default)")
	}
	waiting := Waits(log)
	if err := s.expectHeld(ctx, c, why, waiting); err != nil {
		return nil, err
	}
	standing, err := storestate.ReadAtBoot(ctx, s.Conn, waiting)
	if err != nil {
		return nil, err
	}
	if err := why.Admits(standing); err != nil {
		return nil, err
	}
	if slices.Contains([]storestate.State{storestate.StateDraining, storestate.StateSealing,
		storestate.StateRetired},
		standing.State) {
		return s, s.bindAccounts(ctx, log) // sealed streams differ from the table
	}
	if err := s.ensure(ctx, c, log, why); err != nil {
		return nil, err
	}
	if err := s.bindAccounts(ctx, log); err != nil {
		return nil, err
	}
	if why == ToServe {
		err = storestate.OpenAtBoot(ctx, s.Conn, waiting)
	}
	return s, err
}

// ensure creates or checks the topology, and checks what the embedded server has read from its files.
func (s *Store) ensure(ctx context.Context, c config.Store, log zerolog.Logger, why Purpose) error {
	ensurer := provision.Ensurer{
		Conn: s.Conn, Topology: topology.New(c.Topology), Update: why == ToServe,
		Finish: why == ToFill, // no older build serves a store that is being filled
	}
	if s.Embedded != nil && why != ToServe {
		s.Embedded.KeepAsBefore(ensurer.Topology.Streams)
	}
	ensurer.Changed = func(asset, field, from, to string) {
		log.Warn().Str("asset", asset).Str("field", field).Str("from", from).Str("to", to).
			Msg("a setting of the store was changed to this service's")
	}
	ensurer.Shorten = func(ctx context.Context, stream string, to time.Duration) error {
		return MayShorten(ctx, s.Conn, stream, to)
	}
	ensurer.Waiting = append(ensurer.Waiting, Waits(log))
	err := ensurer.EnsureAtBoot(ctx)
	if natsconf.LacksServers(err) {
		return config.Usage(config.TooManyCopies(c.Topology.Replicas, err.Error()))
	}
	if err != nil || s.Embedded == nil {
		return err
	}
	if err := s.Embedded.CheckServed(); err != nil { // now that all streams exist
		return err
	}
	s.Embedded.StageInMemory() // the streams may be new
	return nil
}

// Waits logs why a start takes long, also to a command's log, which has errors alone.
func Waits(log zerolog.Logger) func(error) {
	log = log.Level(min(log.GetLevel(), zerolog.WarnLevel))
	return func(err error) { log.Warn().Err(err).Msg("waiting for the store") }
}

// bindAccounts also finds out whether the master key is the store's, and what its time is.
func (s *Store) bindAccounts(ctx context.Context, log zerolog.Logger) error {
	err := natsconf.AtBoot(ctx, func(ctx context.Context) (err error) {
		if s.Accounts, err = accountstore.New(ctx, s.Conn, s.Key); err != nil {
			return err
		}
		s.Ring = s.Accounts.Ring
		s.Accounts.ReportUnreadable(func(err error) {
			log.Error().Err(err).Msg("a record cannot be read; lists leave it out")
		})
		return s.Conn.Clock.Read(ctx)
	}, func(err error) bool {
		return errors.Is(err, storestate.ErrMasterKey) || errors.Is(err, natsconf.ErrNewer)
	}, Waits(log))
	if errors.Is(err, storestate.ErrMasterKey) {
		var f config.Faults
		f.Add("secret-key", err.Error(),
			"set it, or VERIFYD_SECRET_KEY_FILE, to the key with which the store was created, or the last "+
				"that verifyd secret rekey made; embedded, the key is in "+config.SecretFile+
				" next to the store unless set")
		return config.Usage(f.Err())
	}
	return err
}

// Rebind finds the master keys out again, in a store that was filled: those of the store that its data come
// from have come with them.
func (s *Store) Rebind(ctx context.Context) error {
	if err := storestate.RepairRing(ctx, s.Conn); err != nil {
		return err
	}
	return s.bindAccounts(ctx, zerolog.Nop())
}

// noStore refuses to create a new store unless that is allowed.
func noStore(setting, where string) error {
	var f config.Faults
	f.Add(setting, where,
		"give the one of the service; verifyd serve creates a new store, and so does verifyd account "+
			"create NAME --new-store")
	return config.Usage(f.Err())
}

// expectHeld checks, for a command, that external servers hold a store, so that servers named by mistake get
// no streams.
func (s *Store) expectHeld(ctx context.Context, c config.Store, why Purpose, waiting func(error)) error {
	if c.NATSURL == "" || why != ToUse {
		return nil
	}
	held, err := natsconf.HoldsStoreAtBoot(ctx, s.Conn, waiting)
	if err == nil && !held {
		return noStore("nats-url", "these servers hold no store")
	}
	return err
}

func (s *Store) openEmbedded(ctx context.Context, c config.Store, log zerolog.Logger, why Purpose) error {
	if err := CheckAccess(c.DataDir); err != nil {
		return config.Usage(err)
	}
	missing := noStore("data-dir", fmt.Sprintf("there is no store in %q", c.DataDir))
	if why == ToUse && !embedded.MayHoldStore(c.DataDir) {
		return missing
	}
	e, err := embedded.Open(embedded.Options{
		DataDir: c.DataDir, Sync: c.Sync, StoreBytes: c.StoreBytes, Log: log,
	})
	if err != nil {
		return err
	}
	s.Embedded, s.DataDir = e, c.DataDir
	if why == ToRecover {
		if s.Recovery, err = e.BeginRecovery(); err != nil {
			return err
		}
		if s.Recovery == nil {
			return ErrNotDamaged
		}
	}
	if why == ToUse && !embedded.HadStore(c.DataDir) {
		return missing
	}
	if s.Key, err = c.EmbeddedKey(!embedded.HasStore(c.DataDir) && why != ToRecover); err != nil {
		return err
	}
	if c.Sync == embedded.SyncInterval {
		log.Warn().Msg("VERIFYD_SYNC=interval: a power cut can take back up to two minutes of " +
			"acknowledged sessions, outcomes and claims")
	}
	s.Server = supervise.New("embedded server", e)
	s.Server.Up = e.Ready()
	s.layer = supervise.Start("store", log, s.Server)
	return supervise.Await(ctx, s.Server)
}

// Reach is Open for a command, with ToUse or ToBegin: if a running service holds the data directory, it
// connects to that one. Then nothing is written there, and the store may be another user's.
func Reach(ctx context.Context, c config.Store, log zerolog.Logger, why Purpose) (*Store, error) {
	s, refusal := Open(ctx, c, log, why)
	foreign := errors.As(refusal, new(*AccessError))
	if !foreign && !errors.Is(refusal, embedded.ErrLocked) {
		return s, refusal
	}
	ctx, cancel := context.WithTimeout(ctx, endpointWait)
	defer cancel()
	key, err := c.EmbeddedKey(false)
	switch {
	case foreign && err != nil:
		return nil, refusal
	case err != nil:
		return nil, err
	}
	for {
		conn, err := ConnectRunning(ctx, c.DataDir, log)
		if err == nil {
			s := &Store{Conn: conn, Key: key}
			if err := s.bindAccounts(ctx, log); err != nil {
				s.Close()
				return nil, err
			}
			return s, nil
		}
		if foreign {
			return nil, refusal
		}
		select {
		case <-time.After(100 * time.Millisecond): // it may be starting
		case <-ctx.Done():
			return nil, fmt.Errorf("reach the running service of %s: %w", c.DataDir, err)
		}
	}
}

// ConnectRunning connects to the running service that holds a data directory.
func ConnectRunning(ctx context.Context, dataDir string, log zerolog.Logger) (*natsconf.Conn, error) {
	end, err := embedded.ReadEndpoint(dataDir)
	if err != nil {
		return nil, err
	}
	// the file may be a dead server's: read it again soon
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return natsconf.Connect(ctx, natsconf.ConnectOptions{
		URL: end.URL, User: end.User, Password: end.Password, Name: "verifyd command", Log: log,
	})
}

// Close closes the connection, then the server, then releases the data directory.
func (s *Store) Close() {
	if s.Conn != nil {
		s.Conn.Close()
	}
	if s.layer != nil {
		s.layer.Stop()
	}
	if s.Embedded != nil {
		_ = s.Embedded.Close()
	}
}

// ErrNotDamaged is returned if there is nothing to recover.
var ErrNotDamaged = errors.New("the store is not damaged")
