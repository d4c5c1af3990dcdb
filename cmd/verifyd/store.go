package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"

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
	embedded *natsconf.Embedded // nil where another process or a cluster runs the server
	server   *actor
	layer    *layer
}

// openStore starts the embedded server, or connects to the external one, and makes sure of the topology. For an embedded store
// that another process holds the error is natsconf.ErrLocked.
func openStore(ctx context.Context, c storeConfig, log zerolog.Logger) (_ *store, err error) {
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	s := &store{}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if c.natsURL == "" {
		if err := s.startEmbedded(ctx, c, log); err != nil {
			return nil, err
		}
	}
	if s.key, err = c.masterKey(); err != nil {
		return nil, err
	}
	s.conn, err = natsconf.Connect(ctx, natsconf.ConnectOptions{
		Embedded: s.embedded, URL: c.natsURL, CredsFile: c.natsCreds, RootCAs: c.natsRoots, Name: "verifyd", Log: log,
	})
	if err != nil {
		return nil, err
	}
	if err := natsconf.EnsureAtBoot(ctx, s.conn.JS, natsconf.NewTopology(c.topology)); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *store) startEmbedded(ctx context.Context, c storeConfig, log zerolog.Logger) error {
	e, err := natsconf.OpenEmbedded(natsconf.EmbeddedOptions{DataDir: c.dataDir, Sync: c.sync, StoreBytes: c.storeBytes, Log: log})
	if err != nil {
		return err
	}
	if c.sync == natsconf.SyncInterval {
		log.Warn().Msg("VERIFYD_SYNC=interval: a power cut can take back up to two minutes of acknowledged sessions, outcomes and claims")
	}
	s.embedded = e
	s.server = newActor("embedded server", e)
	s.layer = startLayer("store", log, s.server)
	return await(ctx, s.server, e.Ready())
}

// reachStore is openStore for a command: where a running service holds the data directory, it connects to that one.
func reachStore(ctx context.Context, c storeConfig, log zerolog.Logger) (*store, error) {
	s, err := openStore(ctx, c, log)
	if !errors.Is(err, natsconf.ErrLocked) {
		return s, err
	}
	ctx, cancel := context.WithTimeout(ctx, endpointWait)
	defer cancel()
	key, err := c.masterKey()
	if err != nil {
		return nil, err
	}
	for {
		conn, err := connectRunning(ctx, c.dataDir, log)
		if err == nil {
			return &store{conn: conn, key: key}, nil
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

// masterKey gives the key that seals what the store must not show.
func (c storeConfig) masterKey() (seal.Key, error) {
	switch {
	case c.key != nil:
		return *c.key, nil
	case c.keyFile != "":
		return seal.Load(c.keyFile)
	default:
		return seal.LoadOrCreate(filepath.Join(c.dataDir, secretFile))
	}
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
