// Command verifyd-bench measures the service on this machine, next to ceilings, and prints a table. Package
// bench describes what it measures, and by which rules.
//
//	go run ./cmd/verifyd-bench --row init --duration 10s
//
// It starts the verifyd of --verifyd, or one that it builds from the source in the current folder.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"verifyd/cmd/verifyd-bench/bench"
	"verifyd/cmd/verifyd-bench/bench/child"
	"verifyd/cmd/verifyd-bench/proofs"
	"verifyd/cmd/verifyd-bench/soak"
	"verifyd/cmd/verifyd/manual"
	"verifyd/cmd/verifyd/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// cli is the command line.
type cli struct {
	Measure measureCmd `cmd:"" default:"withargs" help:"Measure the service on this machine, next to ceilings, and print a table."`
	Prove   proveCmd   `cmd:"" help:"Run proofs: the tests that take long, need more than Go, or measure."`
	Soak    soakCmd    `cmd:"" help:"Run a whole site for long, under faults, and look whether anything is lost, repeated or grows."`
	Server  serverCmd  `cmd:"" name:"nats-server" hidden:"" help:"A NATS server of the soak."`
	Child   childCmd   `cmd:"" hidden:"" help:"A child of the bench."`
	Manual  manualCmd  `cmd:"" hidden:"" help:"Print what packages install with the bench."`
}

// The exit codes: 1 for a failure, 2 for a command line that is wrong.
const (
	exitFailed = 1
	exitUsage  = 2
)

// usageError marks a fault of the command line.
type usageError struct{ error }

// console is where a command writes: results to out, everything else to err.
type console struct{ out, err io.Writer }

// run runs one command line until it is done or ctx ends, and returns the exit code.
func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	parser, err := kong.New(&cli{}, kong.Name("verifyd-bench"), kong.Writers(out, errOut),
		kong.Description("Measures verifyd on this machine, next to ceilings, and runs its proofs."),
		kong.UsageOnError(),
		kong.Vars{"rows": strings.Join(bench.Rows(), ", ")}, kong.BindTo(ctx, (*context.Context)(nil)))
	var parsed *kong.Context
	if err == nil {
		if parsed, err = parser.Parse(args); err != nil {
			err = usageError{err}
		}
	}
	if err == nil {
		err = parsed.Run(console{out, errOut})
	}
	if err == nil {
		return 0
	}
	_, _ = fmt.Fprintln(errOut, "verifyd-bench:", err)
	if errors.As(err, new(usageError)) {
		return exitUsage
	}
	return exitFailed
}

// proveCmd runs proofs, in the folder of the repository.
type proveCmd struct {
	Run  proveRunCmd `cmd:"" default:"withargs" help:"Run proofs; without a name, list them."`
	Hunt huntCmd     `cmd:"" help:"Run the quick tests again and again beside a busy processor."`
}

type proveRunCmd struct {
	Names   []string `arg:"" optional:"" name:"name" help:"Proofs to run, or all, which takes hours."`
	Install bool     `help:"Install what these proofs need and is missing, on Debian, as root."`
	Write   bool     `help:"Write the results into docs/EVIDENCE.md."`
	Asked   bool     `help:"Print which proofs changes ask for, of the files that standard input lists."`
}

// Run lists proofs, or runs them.
func (p proveRunCmd) Run(ctx context.Context, c console) error {
	if p.Asked {
		files, err := io.ReadAll(os.Stdin)
		if err != nil {
			return fmt.Errorf("read the names of files: %w", err)
		}
		names := strings.Join(proofs.Asked(".", strings.Fields(string(files))), " ")
		_, err = fmt.Fprintln(c.out, cmp.Or(names, "none"))
		return err
	}
	names := p.Names
	if slices.Equal(names, []string{"all"}) {
		names = nil
	}
	selected, err := proofs.Select(names...)
	if err != nil {
		return usageError{err}
	}
	if p.Install {
		if err := proofs.Install(ctx, selected, c.err); err != nil {
			return err
		}
	}
	switch {
	case len(p.Names) == 0 && p.Write:
		return usageError{errors.New("--write needs the names of proofs, or all")}
	case len(p.Names) == 0:
		return proofs.List(ctx, selected, c.out)
	}
	logs, err := os.MkdirTemp("", "verifyd-prove-")
	if err != nil {
		return fmt.Errorf("make a folder for what tests print: %w", err)
	}
	return proofs.Run(ctx, selected, proofs.Options{Root: ".", Logs: logs, Write: p.Write, Out: c.out})
}

type huntCmd struct {
	Times int `arg:"" help:"How often, such as 20."`
}

// Run hunts.
func (h huntCmd) Run(ctx context.Context, c console) error {
	if h.Times < 1 {
		return usageError{errors.New("hunt runs the tests at least once")}
	}
	return proofs.Hunt(ctx, ".", h.Times, c.out)
}

// soakCmd runs a site for a long time.
type soakCmd struct {
	For  time.Duration `default:"20m" help:"How long sessions are started; from 20m on what is kept ages out."`
	Rate int           `default:"20" help:"Sessions a second."`
	Seed uint64        `default:"1" help:"Of the faults, and of what users do."`
	Dir  string        `placeholder:"DIR" help:"Where the stores are made, and soak.svg, the plots; default: a temporary folder, which stays."`
}

// Run runs it until it is judged or interrupted.
func (m soakCmd) Run(ctx context.Context, c console) (err error) {
	if m.For < time.Second || m.Rate < 1 {
		return usageError{errors.New("--for is at least 1s, and --rate at least 1")}
	}
	o := soak.Options{For: m.For, Rate: m.Rate, Seed: m.Seed, Dir: m.Dir, Out: c.out}
	if o.Self, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program's own file: %w", err)
	}
	if o.Dir == "" {
		if o.Dir, err = os.MkdirTemp("", "verifyd-soak-"); err != nil {
			return fmt.Errorf("make a temporary folder: %w", err)
		}
	}
	return soak.Run(ctx, o)
}

// serverCmd is a NATS server of the soak.
type serverCmd struct {
	Config string `arg:"" help:"Its configuration file."`
}

// Run serves until it is stopped.
func (m serverCmd) Run(ctx context.Context) error { return soak.Serve(ctx, m.Config) }

// manualCmd prints the man page or the completions of a shell.
type manualCmd struct {
	As string `arg:"" help:"man, bash, zsh or fish."`
}

// Run prints it.
func (m manualCmd) Run(k *kong.Kong, c console) error {
	return manual.Program{App: k.Model, Version: version.Text()}.Write(c.out, m.As)
}

// measureCmd has no flags with variables: the service's variables would point it at the service's own NATS
// servers and settings.
type measureCmd struct {
	Row      []string      `sep:"," placeholder:"NAME" help:"Rows to measure, with their ceilings: ${rows}; default: all but scaling and million, which take longer."`
	Sync     string        `default:"both" help:"What the embedded store does: always, interval or both."`
	Duration time.Duration `default:"3s" help:"Of one measurement."`
	Runs     int           `default:"3" help:"Runs of each row, whose medians are shown."`
	JSON     bool          `name:"json" help:"Print one JSON document instead of a table."`
	Profile  string        `placeholder:"DIR" help:"Keep a CPU profile of the service for each of its rows there, for go tool pprof; it costs one or two hundredths."`
	Dir      string        `placeholder:"DIR" help:"Where the stores are made, on the disk to be measured; default: the system's temporary folder."`
	Verifyd  string        `placeholder:"FILE" help:"The verifyd to measure; default: one that go build makes of the source in this folder."`

	CopyTo string `placeholder:"DIR" help:"Keep copies of the stores there meanwhile, as VERIFYD_COPY_TO does; measure with and without in turns."`

	Connections int `default:"16" placeholder:"N" help:"Connections to a receiver host that each dispatcher process of the row scaling has."`

	NATSURL   string `name:"nats-url" placeholder:"URL" help:"Measure on external NATS servers, which must hold no store of verifyd, instead of the embedded one."`
	NATSCreds string `name:"nats-creds" placeholder:"FILE" help:"Credentials file for them."`
	Replicas  int    `placeholder:"N" help:"Copies of every stream there; default 3."`

	Scale float64 `default:"1" hidden:"" help:"Of the numbers of sessions."`
}

// Run measures until it is done or interrupted; what was measured by then is printed.
func (m measureCmd) Run(ctx context.Context, c console) (err error) {
	o := bench.Options{
		Rows: m.Row, Sync: m.Sync, Duration: m.Duration, Runs: m.Runs, Scale: m.Scale, JSON: m.JSON,
		Profile: m.Profile, Dir: m.Dir,
		CopyTo: m.CopyTo, Connections: m.Connections, NATSURL: m.NATSURL, NATSCreds: m.NATSCreds,
		Replicas: m.Replicas,
		Verifyd:  m.Verifyd, Out: c.out, Err: c.err, Terminal: isTerminal(c.err),
	}
	if err := o.Validate(); err != nil {
		return usageError{err}
	}
	if withPassword.MatchString(m.NATSURL) {
		_, _ = fmt.Fprintln(c.err,
			"verifyd-bench: warning: --nats-url: the command line shows a secret to everybody on this "+
				"machine; name a file with --nats-creds")
	}
	if o.Self, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program's own file: %w", err)
	}
	dir, err := os.MkdirTemp("", "verifyd-bench-build-")
	if err != nil {
		return fmt.Errorf("make a temporary folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if o.Verifyd == "" {
		if o.Verifyd, err = build(ctx, dir); err != nil {
			return err
		}
	}
	if o.Version, err = versionOf(ctx, o.Verifyd); err != nil {
		return err
	}
	return bench.Run(ctx, o)
}

// withPassword is a URL with a password in it, also if the rest of it is wrong.
var withPassword = regexp.MustCompile(`://[^/?#,]*:[^/?#,]*@`)

// build builds verifyd from the source in the current folder.
func build(ctx context.Context, dir string) (file string, err error) {
	file = filepath.Join(dir, "verifyd")
	output, err := exec.CommandContext(ctx, "go", "build", "-o", file, "verifyd/cmd/verifyd"). //nolint:gosec // our own folder
													CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build verifyd: %w\n%s\n"+
			"run this in verifyd's source, or name a verifyd with --verifyd", err, output)
	}
	return file, nil
}

// versionOf asks a verifyd for its version.
func versionOf(ctx context.Context, file string) (string, error) {
	out, err := exec.CommandContext(ctx, file, "version").Output()
	if err != nil {
		return "", fmt.Errorf("%s version: %w", file, err)
	}
	version := strings.TrimPrefix(strings.TrimSpace(string(out)), "verifyd ")
	return cmp.Or(version, "unknown"), nil
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// childCmd is one of the bench's own children: a ceiling, or a part of the service alone.
type childCmd struct {
	Kind string `arg:"" help:"What to be."`
}

// Run executes the orders of the bench on standard input, until that ends.
func (m childCmd) Run(ctx context.Context, c console) error {
	return child.Main(ctx, m.Kind, os.Stdin, c.out)
}
