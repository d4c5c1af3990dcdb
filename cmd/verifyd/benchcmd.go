package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"verifyd/cmd/verifyd/bench"
)

// benchCmd measures the service on this machine. Its flags have no variables: those of the service would point it at the service's own
// NATS servers and settings.
type benchCmd struct {
	Row      []string      `env:"-" sep:"," placeholder:"NAME" help:"Rows to measure, with their ceilings: ${bench_rows}; default: all but scaling and million, which take longer."`
	Sync     string        `env:"-" default:"both" help:"What the embedded store does: always, interval or both."`
	Duration time.Duration `env:"-" default:"3s" help:"Of one measurement."`
	Runs     int           `env:"-" default:"3" help:"Runs of each row, whose medians are shown."`
	JSON     bool          `env:"-" name:"json" help:"Print one JSON document instead of a table."`
	Profile  string        `env:"-" placeholder:"DIR" help:"Keep a CPU profile of the service for each of its rows there, for go tool pprof; it costs one or two hundredths."`
	Dir      string        `env:"-" placeholder:"DIR" help:"Where the stores are made, on the disk to be measured; default: the system's temporary folder."`

	Connections int `env:"-" default:"16" placeholder:"N" help:"Connections to a receiver host that each dispatcher process of the row scaling has."`

	NATSURL   string `env:"-" name:"nats-url" placeholder:"URL" help:"Measure on external NATS servers, which must hold no store of verifyd, instead of the embedded one."`
	NATSCreds string `env:"-" name:"nats-creds" placeholder:"FILE" help:"Credentials file for them."`
	Replicas  int    `env:"-" placeholder:"N" help:"Copies of every stream there; default 3."`

	Scale float64 `env:"-" default:"1" hidden:"" help:"Of the numbers of sessions."`
}

// Run measures until it is done or interrupted; what was measured by then is printed.
func (b benchCmd) Run(ctx context.Context, c console) error {
	executable, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program's own file: %w", err)
	}
	o := bench.Options{
		Rows: b.Row, Sync: b.Sync, Duration: b.Duration, Runs: b.Runs, Scale: b.Scale, JSON: b.JSON, Profile: b.Profile, Dir: b.Dir,
		Connections: b.Connections, NATSURL: b.NATSURL, NATSCreds: b.NATSCreds, Replicas: b.Replicas,
		Version: versionText(), Executable: executable, Out: c.out, Err: c.err, Terminal: isTerminal(c.err),
	}
	if err := o.Validate(); err != nil {
		return usageError{err}
	}
	return bench.Run(ctx, o)
}

// benchRows names the rows in the help text.
func benchRows() string { return strings.Join(bench.Rows(), ", ") }

// benchChildCmd is one of the bench's own children: a ceiling, or a part of the service alone.
type benchChildCmd struct {
	Kind string `arg:"" help:"What to be."`
}

// Run does what the bench says on standard input, until that ends.
func (b benchChildCmd) Run(ctx context.Context, c console) error {
	return bench.Child(ctx, b.Kind, os.Stdin, c.out)
}
