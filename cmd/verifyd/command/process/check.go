package process

import (
	"context"
	"errors"

	"verifyd/cmd/verifyd/check"
	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/flags"
)

// Check checks the settings and what they refer to, and suggests what to do.
type Check struct {
	config.Settings `embed:""`

	JSON  bool   `name:"json" help:"Print the findings as one JSON document."`
	Deep  bool   `help:"Read every record of the embedded store, verify its checksum, and report records that are missing."`
	Files string `placeholder:"DIR" help:"Read the files of a stopped NATS server's JetStream store, and report which streams are damaged there."`
	Probe string `placeholder:"URL" help:"A callback_url to connect to as a callback would, without sending anything."`
}

// errCheck is returned if a finding is an error: verifyd serve would not start, or not work.
var errCheck = errors.New(
	"errors were found; verifyd serve would not start, or not work, until they are fixed")

// Run checks the settings that serve would get, and what they refer to, and changes nothing.
func (k Check) Run(ctx context.Context, c command.Console, notes flags.Notes) error {
	var s check.Survey
	for _, n := range notes {
		s.Warn("configuration", n.Right, "%s", n.Wrong)
	}
	s.Say = c.Say // what notes are about are variables
	if k.Files != "" {
		s.Files(k.Files)
	} else {
		s.Run(ctx, k.Settings, k.Probe, k.Deep)
	}
	if err := s.Print(c.Out, k.JSON); err != nil {
		return err
	}
	if s.Worst() == check.LevelError {
		return errCheck
	}
	return nil
}
