package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"verifyd/edge/account"
	"verifyd/natsconf"
	"verifyd/natsconf/seal"
)

const (
	// bootTimeout bounds the start: recovering a large store, a cluster electing its leaders.
	bootTimeout = time.Minute
	// endpointWait bounds how long a command waits for the running service that holds the data directory to be reachable.
	endpointWait = 10 * time.Second
	secretFile   = "secret.key"
)

// store is JetStream as a process reaches it, with the master key that belongs to it.
type store struct {
	conn     *natsconf.Conn
	key      seal.Key
	accounts *account.Store
	embedded *natsconf.Embedded // nil where another process or a cluster runs the server
	server   *actor
	layer    *layer
}

// purpose is what a store is opened for.
type purpose int

const (
	toServe  purpose = iota // the service: it may update the topology, and the store has to be in service or new
	toUse                   // a command: it leaves the topology as it is
	toFill                  // a move or a restore: the store has to be new, or one that is being filled
	toRepeat                // a move that has ended, or nearly: the store may be open
)

// admits says whether a store of this standing may be opened.
func (why purpose) admits(s natsconf.Standing) error {
	var admitted []natsconf.StandingState
	switch why {
	case toServe:
		admitted = []natsconf.StandingState{"", natsconf.StandingOpen}
	case toUse:
		admitted = []natsconf.StandingState{"", natsconf.StandingOpen, natsconf.StandingLeaving, natsconf.StandingSealing, natsconf.StandingLeft}
	case toFill:
		admitted = []natsconf.StandingState{"", natsconf.StandingFilling}
	case toRepeat:
		admitted = []natsconf.StandingState{natsconf.StandingFilling, natsconf.StandingOpen}
	}
	if slices.Contains(admitted, s.State) {
		return nil
	}
	return usageError{&natsconf.StandingError{Standing: s}}
}

// openStore starts the embedded server, or connects to the external one, and makes sure of the topology. Only a service may update
// it; a command leaves what is there. For an embedded store that another process holds the error is natsconf.ErrLocked.
func openStore(ctx context.Context, c storeConfig, log zerolog.Logger, why purpose) (_ *store, err error) {
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	s := &store{}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if c.natsURL == "" {
		err = s.openEmbedded(ctx, c, log)
	} else {
		s.key, err = c.externalKey()
	}
	if err != nil {
		return nil, err
	}
	s.conn, err = natsconf.Connect(ctx, natsconf.ConnectOptions{
		Embedded: s.embedded, URL: c.natsURL, CredsFile: c.natsCreds, RootCAs: c.natsRoots, Name: "verifyd", Log: log,
	})
	if err != nil {
		return nil, err
	}
	if c.natsURL != "" && c.topology.Replicas == 1 && why == toServe {
		log.Warn().Msg("VERIFYD_REPLICAS=1 on an external server: what is acknowledged is as durable as that server's own sync setting (2 minutes by default)")
	}
	waiting := waits(log)
	standing, err := s.conn.StandingAtBoot(ctx, waiting)
	if err != nil {
		return nil, err
	}
	if err := why.admits(standing); err != nil {
		return nil, err
	}
	if slices.Contains([]natsconf.StandingState{natsconf.StandingLeaving, natsconf.StandingSealing, natsconf.StandingLeft}, standing.State) {
		return s, s.bindAccounts(ctx, waiting) // sealed streams are not the table's any more
	}
	ensurer := natsconf.Ensurer{Conn: s.conn, Topology: natsconf.NewTopology(c.topology), Update: why == toServe}
	ensurer.Changed = func(asset, field, from, to string) {
		log.Warn().Str("asset", asset).Str("field", field).Str("from", from).Str("to", to).Msg("a setting of the store was changed to this service's")
	}
	ensurer.Waiting = append(ensurer.Waiting, waiting)
	if err := ensurer.EnsureAtBoot(ctx); err != nil {
		return nil, err
	}
	if s.embedded != nil {
		s.embedded.StageInMemory() // the streams may be new
	}
	if err := s.bindAccounts(ctx, waiting); err != nil {
		return nil, err
	}
	if why == toServe {
		err = s.conn.OpenAtBoot(ctx, waiting)
	}
	return s, err
}

// waits tells operators why a start takes its time.
func waits(log zerolog.Logger) func(error) {
	return func(err error) { log.Warn().Err(err).Msg("the start waits for the store") }
}

// bindAccounts also finds out whether the master key is the store's.
func (s *store) bindAccounts(ctx context.Context, waiting func(error)) error {
	err := natsconf.AtBoot(ctx, func(ctx context.Context) (err error) {
		s.accounts, err = account.NewStore(ctx, s.conn, s.key)
		return err
	}, func(err error) bool { return errors.Is(err, account.ErrMasterKey) }, waiting)
	if errors.Is(err, account.ErrMasterKey) {
		var f faults
		f.add("secret-key", err.Error(), "set it, or VERIFYD_SECRET_KEY_FILE, as the service that made the store has it; embedded, the key is in "+secretFile+" beside the store unless set")
		return usageError{f.err()}
	}
	return err
}

func (s *store) openEmbedded(ctx context.Context, c storeConfig, log zerolog.Logger) error {
	e, err := natsconf.OpenEmbedded(natsconf.EmbeddedOptions{DataDir: c.dataDir, Sync: c.sync, StoreBytes: c.storeBytes, Log: log})
	if err != nil {
		return err
	}
	s.embedded = e
	if s.key, err = c.embeddedKey(!e.HasStore()); err != nil {
		return err
	}
	if c.sync == natsconf.SyncInterval {
		log.Warn().Msg("VERIFYD_SYNC=interval: a power cut can take back up to two minutes of acknowledged sessions, outcomes and claims")
	}
	s.server = newActor("embedded server", e)
	s.layer = startLayer("store", log, s.server)
	return await(ctx, s.server, e.Ready())
}

// reachStore is openStore for a command: where a running service holds the data directory, it connects to that one.
func reachStore(ctx context.Context, c storeConfig, log zerolog.Logger) (*store, error) {
	s, err := openStore(ctx, c, log, toUse)
	if !errors.Is(err, natsconf.ErrLocked) {
		return s, err
	}
	ctx, cancel := context.WithTimeout(ctx, endpointWait)
	defer cancel()
	key, err := c.embeddedKey(false)
	if err != nil {
		return nil, err
	}
	for {
		conn, err := connectRunning(ctx, c.dataDir, log)
		if err == nil {
			s := &store{conn: conn, key: key}
			if err := s.bindAccounts(ctx, waits(log)); err != nil {
				s.close()
				return nil, err
			}
			return s, nil
		}
		select {
		case <-time.After(100 * time.Millisecond): // it may be starting
		case <-ctx.Done():
			return nil, fmt.Errorf("reach the running service of %s: %w", c.dataDir, err)
		}
	}
}

func connectRunning(ctx context.Context, dataDir string, log zerolog.Logger) (*natsconf.Conn, error) {
	end, err := natsconf.ReadEndpoint(dataDir)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second) // the file may be a dead server's: read it again soon
	defer cancel()
	return natsconf.Connect(ctx, natsconf.ConnectOptions{URL: end.URL, User: end.User, Password: end.Password, Name: "verifyd command", Log: log})
}

// externalKey gives the master key of an external store, which its processes share by configuration.
func (c storeConfig) externalKey() (seal.Key, error) {
	if c.key != nil {
		return *c.key, nil
	}
	return c.loadKey(c.keyFile)
}

// embeddedKey gives the master key of an embedded store. A new one is made only with a new store: beside an old one it would open
// nothing.
func (c storeConfig) embeddedKey(fresh bool) (seal.Key, error) {
	if c.key != nil || c.keyFile != "" {
		return c.externalKey()
	}
	path := filepath.Join(c.dataDir, secretFile)
	if fresh {
		return seal.LoadOrCreate(path)
	}
	return c.loadKey(path)
}

func (c storeConfig) loadKey(path string) (seal.Key, error) {
	k, err := seal.Load(path)
	if errors.Is(err, os.ErrNotExist) {
		var f faults
		f.add("secret-key-file", "there is no master key in "+path, "put back the key that the store was made with, or set VERIFYD_SECRET_KEY")
		return k, usageError{f.err()}
	}
	return k, err
}

// close ends the connection, then the server, then the hold on the data directory.
func (s *store) close() {
	if s.conn != nil {
		s.conn.Close()
	}
	if s.layer != nil {
		s.layer.stop()
	}
	if s.embedded != nil {
		_ = s.embedded.Close()
	}
}
