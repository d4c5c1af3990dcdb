// Package process has the commands on the running service: serving, and asking how its processes are and
// what is wrong with their settings.
package process

import (
	"context"

	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/flags"
	"verifyd/cmd/verifyd/service"
)

// Serve runs the service.
type Serve struct {
	config.Settings `embed:""`
}

// Run runs the service until SIGTERM or SIGINT.
func (s Serve) Run(ctx context.Context, c command.Console, notes flags.Notes) error {
	j, err := s.Logger(c.Err)
	if err != nil {
		return config.Usage(err)
	}
	notes.Log(j.Log())
	cfg, err := s.Config(j.Log())
	if err != nil {
		return config.Usage(err)
	}
	cfg.Logger = j
	return service.New(cfg).Serve(ctx)
}
