package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/command/accounts"
	"verifyd/cmd/verifyd/command/delivery"
	"verifyd/cmd/verifyd/command/export"
	"verifyd/cmd/verifyd/command/integrator"
	"verifyd/cmd/verifyd/command/process"
	"verifyd/cmd/verifyd/command/storage"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/flags"
	"verifyd/cmd/verifyd/version"
	"verifyd/edge/redrive"
	"verifyd/sessions"
)

func main() {
	ends := []os.Signal{syscall.SIGTERM, syscall.SIGINT}
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	context.AfterFunc(ctx, func() {
		stop()                        // a second signal ends the process at once,
		signal.Ignore(syscall.SIGHUP) // but for this one: a terminal that closes sends two
	})
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// cli is the command line.
type cli struct {
	Config      flags.ConfigFile `env:"VERIFYD_CONFIG" help:"YAML file of settings." placeholder:"FILE"`
	ShowVersion kong.VersionFlag `name:"version" help:"Print the version."`

	Serve process.Serve `cmd:"" help:"Run the service."`

	Demo       integrator.Demo   `cmd:"" help:"Run everything on loopback, with a sample integrator, and show a callback."`
	DemoBeside integrator.Beside `cmd:"" help:"Play integrator, identity network and user next to a running service, and show a callback."`

	Key      accounts.Key      `cmd:"" help:"API keys."`
	Account  accounts.Account  `cmd:"" help:"Accounts."`
	Member   accounts.Member   `cmd:"" help:"Members of accounts, and invites."`
	Operator accounts.Operator `cmd:"" help:"Who may use the operator's pages of the dashboard, and the tokens with which programs manage accounts."`

	Hosts      delivery.Hosts      `cmd:"" help:"Receiver hosts: which do not answer, and which are paused."`
	Deliveries delivery.Deliveries `cmd:"" help:"Callbacks and how they ended."`
	Sessions   export.Sessions     `cmd:"" help:"An account's sessions, for other programs."`
	Explain    delivery.Explain    `cmd:"" help:"Explain in plain words what happened to a session, and what to do."`

	Try    integrator.Try    `cmd:"" help:"Test an integrator's receiver: what it must accept, and what it must refuse."`
	Listen integrator.Listen `cmd:"" help:"Forward the callbacks of a test key's sessions to a program on this machine."`

	Status process.Status `cmd:"" help:"Show the state of the service: processes, cluster, backlog, verdicts, store, receiver hosts in trouble."`
	Check  process.Check  `cmd:"" help:"Check the settings and what they refer to, and suggest what to do."`

	Move    storage.Move    `cmd:"" help:"Move the store to a NATS cluster while the service runs."`
	Backup  storage.Backup  `cmd:"" help:"Write everything in the store into one file, while the service runs."`
	Restore storage.Restore `cmd:"" help:"Fill a new store from a backup, or from a copy of the store."`
	Recover storage.Recover `cmd:"" help:"Repair a damaged store so that it can be served again, and report what it has lost."`
	Erase   storage.Erase   `cmd:"" help:"Erase what is stored about one user."`
	Secret  storage.Secret  `cmd:"" help:"The master key."`

	LogLevel process.LogLevel `cmd:"" help:"Show the log level of a running process, or change it."`

	Prepare storage.Prepare `cmd:"" help:"Create what a service on several machines shares: secrets, credentials, the NATS servers' configuration."`
	Apply   storage.Apply   `cmd:"" help:"Create or update on external NATS servers what verifyd keeps there, with the operator's credential."`

	Health process.Health `cmd:"" name:"healthcheck" help:"Check whether a process on this machine is ready; for containers, which have no other client."`

	Version    versionCmd    `cmd:"" help:"Print the version."`
	Completion completionCmd `cmd:"" help:"Print the completions of a shell."`
	Help       helpCmd       `cmd:"" help:"Explain a command: its purpose, an example, and its flags."`
}

// The exit codes: 1 for a failure, 2 for a command line or a setting that is wrong.
const (
	exitFailed = 1
	exitUsage  = 2
)

// run runs one command line until it is done or ctx ends, and returns the exit code.
func run(ctx context.Context, args []string, out, errOut io.Writer) (code int) {
	parser, err := newParser(kong.Writers(out, errOut))
	if err != nil {
		return fail(errOut, err)
	}
	defer func() {
		if p := recover(); p != nil {
			e, ok := p.(exit)
			if !ok {
				panic(p)
			}
			code = int(e)
		}
	}()
	if lacksCommand(parser, args) {
		return fail(errOut, showHelp(parser, args))
	}
	parsed, err := parser.Parse(dashed(args))
	if err != nil {
		return fail(errOut, config.Usage(err))
	}
	parsed.BindTo(ctx, (*context.Context)(nil))
	parsed.Bind(flags.NotesOn(parsed, errOut))
	given := flags.GivenTo(parsed)
	c := command.Console{Out: out, Err: errOut, Reword: given.Text}
	if parsed.Selected().Name != "serve" { // its log names settings for whoever reads it, not for a shell
		c.Err = given.Writer(errOut)
	}
	if err := parsed.Run(c); err != nil {
		return fail(errOut, given.Reworded(err))
	}
	return 0
}

// dashed puts a session's id in the place of its token if that begins with a dash, as one in 64 does: the
// flag library would read it as a flag.
func dashed(args []string) []string {
	args = slices.Clone(args)
	for i, a := range args {
		if token, err := sessions.ParseToken(a); err == nil && strings.HasPrefix(a, "-") {
			args[i] = string(token.ID())
		}
	}
	return args
}

// newParser returns the parser of command lines.
func newParser(more ...kong.Option) (*kong.Kong, error) {
	return kong.New(&cli{}, append(more,
		kong.Name("verifyd"),
		kong.Description("Self-hosted identity verification: one sign-in, one outcome, one POST."),
		kong.ExplicitGroups(flags.SettingGroups),
		flags.SettingVariables(),
		kong.Vars{
			"status_every": process.StatusEvery.String(), "redrive_most": strconv.Itoa(redrive.Max),
			"scopes":  accounts.ScopeList(),
			"version": versionLine(),
		},
		kong.Help(helpPage),
		kong.ConfigureHelp(kong.HelpOptions{
			NoAppSummary: true, NoExpandSubcommands: true, Compact: true, FlagsLast: true,
		}),
		kong.Configuration(flags.LoadYAML),
		kong.Exit(func(code int) { panic(exit(code)) }), // --help ends here
		kong.UsageOnError(),
	)...)
}

// exit passes the library's exit code out of its parser.
type exit int

// printFor bounds the wait for what reads standard error.
const printFor = time.Second

// fail prints what went wrong, and returns the exit code. It does not wait for a pipe that nobody reads.
func fail(w io.Writer, err error) (code int) {
	printed := make(chan int, 1)
	go func() { printed <- printError(w, err) }()
	select {
	case code = <-printed:
		return code
	case <-time.After(printFor):
		return exitFailed
	}
}

// printError prints all faults of settings at once, a line each.
func printError(w io.Writer, err error) (code int) {
	if !errors.As(err, new(config.UsageError)) {
		_, _ = fmt.Fprintln(w, "verifyd:", err)
		return exitFailed
	}
	if lines := strings.Split(err.Error(), "\n"); len(lines) > 1 {
		_, _ = fmt.Fprintf(w, "verifyd: nothing was started; invalid settings:\n  %s\n",
			strings.Join(lines, "\n  "))
	} else {
		_, _ = fmt.Fprintln(w, "verifyd:", err)
	}
	return exitUsage
}

type versionCmd struct{}

// Run prints the version.
func (versionCmd) Run(c command.Console) error {
	_, err := fmt.Fprintln(c.Out, versionLine())
	return err
}

// versionLine is the output for every way of requesting the version.
func versionLine() string { return "verifyd " + version.Details() }
