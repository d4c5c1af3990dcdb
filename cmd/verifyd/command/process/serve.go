// Package process has the commands on the running service: serving, and asking how its processes are and
// what is wrong with their settings.
package process

import (
	"context"
	"os/signal"
	"syscall"
	"time"

	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/flags"
	"verifyd/cmd/verifyd/service"
)

// Serve runs the service.
type Serve struct {
	config.Settings `embed:""`
}

// flushFor bounds the wait for what reads the log, at the end.
const flushFor = time.Second

// Run runs the service until the process is told to end.
func (s Serve) Run(ctx context.Context, c command.Console, notes flags.Notes) error {
	signal.Ignore(syscall.SIGPIPE) // else the process ends with what read its log
	j, err := s.Logger(c.Err)
	if err != nil {
		return config.Usage(err)
	}
	defer j.Queue.Flush(flushFor)
	notes.Log(j.Log())
	cfg, err := s.Config(j.Log())
	if err != nil {
		return config.Usage(err)
	}
	cfg.Logger = j
	return service.New(cfg).Serve(ctx)
}
