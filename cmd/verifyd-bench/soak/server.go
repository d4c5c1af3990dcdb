package soak

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats-server/v2/server"
)

// Serve runs a NATS server with a configuration file, until ctx ends.
func Serve(ctx context.Context, config string) error {
	o, err := server.ProcessConfigFile(config)
	if err != nil {
		return err
	}
	o.NoSigs, o.NoLog = true, true
	s, err := server.NewServer(o)
	if err != nil {
		return fmt.Errorf("configure the server: %w", err)
	}
	s.Start()
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	if !s.ReadyForConnections(readyWithin) {
		return errors.New("the server does not start")
	}
	<-ctx.Done()
	return nil
}
