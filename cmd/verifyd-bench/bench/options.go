package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"verifyd/cmd/verifyd-bench/bench/child"
	"verifyd/dispatcher"
	"verifyd/natsconf/embedded"
)

// Options configure what is measured and where the results are printed. Validate checks them.
type Options struct {
	Rows     []string      // names of rows; empty: all that take only seconds
	Sync     string        // always, interval or both: the sync mode of the embedded store
	Duration time.Duration // of one measurement
	Runs     int           // of each row; medians are shown
	Scale    float64       // factor for the numbers of sessions: 1 except in tests

	Connections int // to a receiver host, of each dispatcher process in the row scaling

	JSON    bool   // one document instead of the table
	Profile string // where CPU profiles of the service are kept; empty: no profiles
	Dir     string // where the stores are created; empty: the system's temporary folder
	CopyTo  string // where the service keeps copies of them meanwhile; empty: nowhere

	NATSURL   string // an external server instead of the embedded store; it must hold no store of verifyd
	NATSCreds string
	Replicas  int // of its streams; 0: the service's default

	Verifyd string // the binary of the service that is measured
	Version string // its version
	Self    string // the binary whose command "child" runs child.Main: this one

	Env      []string // additional variables of children, which tests need
	Out, Err io.Writer
	Terminal bool // Err is a terminal: the progress line is rewritten
}

// The values of Options.Sync.
const (
	syncAlways   = string(embedded.SyncAlways)
	syncInterval = string(embedded.SyncInterval)
	syncBoth     = "both"
	syncExternal = "external" // the setting of the external server applies
)

// minDuration is long enough for more than a handful of operations.
const minDuration = 20 * time.Millisecond

// Validate returns every fault of the options at once, each with the flag's name and what would be valid.
func (o Options) Validate() error {
	var faults []error
	fault := func(flag, format string, args ...any) {
		faults = append(faults, fmt.Errorf("--%s: %s", flag, fmt.Sprintf(format, args...)))
	}
	for _, row := range o.Rows {
		if !slices.Contains(rowNames(true), row) {
			fault("row", "there is no row %q; the rows are %s", row, strings.Join(rowNames(false), ", "))
		}
	}
	if !slices.Contains([]string{syncAlways, syncInterval, syncBoth}, o.Sync) {
		fault("sync", "%q is not a mode; use always, interval or both", o.Sync)
	}
	if o.Duration < minDuration || o.Duration > time.Hour {
		fault("duration", "%s is out of range; use %s to 1h, for example 3s", o.Duration, minDuration)
	}
	if o.Runs < 1 || o.Runs > 100 {
		fault("runs", "%d is out of range; use 1 to 100, for example 3", o.Runs)
	}
	if o.Connections < 1 || o.Connections > dispatcher.MaxConnections {
		fault("connections", "%d is out of range; use 1 to %d, for example 16", o.Connections,
			dispatcher.MaxConnections)
	}
	if o.Scale <= 0 || o.Scale > 100 {
		fault("scale", "%g is out of range; use more than 0, up to 100", o.Scale)
	}
	if !isFolder(o.Dir) {
		fault("dir", "%q is not a folder; name one that exists, on the disk that is to be measured", o.Dir)
	}
	if !isFolder(o.Profile) {
		fault("profile", "%q is not a folder; name one that exists", o.Profile)
	}
	faults = append(faults, o.externalFaults()...)
	return errors.Join(faults...)
}

// isFolder also reports true for an empty name, which means none.
func isFolder(name string) bool {
	if name == "" {
		return true
	}
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

func (o Options) externalFaults() (faults []error) {
	if o.NATSURL == "" {
		if o.NATSCreds != "" {
			faults = append(faults, errors.New(
				"--nats-creds: set without --nats-url; name the external server too"))
		}
		if o.Replicas != 0 {
			faults = append(faults, errors.New(
				"--replicas: set without --nats-url; the embedded store keeps one copy"))
		}
		return faults
	}
	if !strings.HasPrefix(o.NATSURL, "nats://") && !strings.HasPrefix(o.NATSURL, "tls://") {
		// The value is not shown: it may hold a password.
		faults = append(faults, errors.New(
			"--nats-url: it is not a nats:// or tls:// URL; for example nats://127.0.0.1:4222"))
	}
	if _, err := os.Stat(o.NATSCreds); o.NATSCreds != "" && err != nil {
		faults = append(faults, fmt.Errorf(
			"--nats-creds: %q cannot be read; give the path of a NATS credentials file", o.NATSCreds))
	}
	if o.Replicas < 0 || o.Replicas > 5 || o.Replicas == 2 || o.Replicas == 4 {
		faults = append(faults, fmt.Errorf("--replicas: %d copies cannot hold a majority; use 1, 3 or 5",
			o.Replicas))
	}
	return faults
}

// syncs returns the modes that are measured, in the order in which they are shown.
func (o Options) syncs() []string {
	switch {
	case o.NATSURL != "":
		return []string{syncExternal}
	case o.Sync == syncBoth:
		return []string{syncAlways, syncInterval}
	default:
		return []string{o.Sync}
	}
}

// scaled returns a number of sessions at the scale, at least 1.
func (o Options) scaled(n int) int { return max(1, int(float64(n)*o.Scale)) }

// warmUp is how long a load runs before it counts, so that connections are open and the store has its files.
func (o Options) warmUp() time.Duration { return min(o.Duration/4, 500*time.Millisecond) }

// startChild starts one of the bench's own children.
func (o Options) startChild(ctx context.Context, kind string, c child.Config) (*child.Child, error) {
	return child.Start(ctx, o.Self, o.Env, kind, c)
}

// The rows.
const (
	rowGenerator   = "generator"
	rowBareHandler = "bare-handler"
	rowInit        = "init"
	rowPublish     = "publish"
	rowComplete    = "complete"
	rowBareClient  = "bare-client"
	rowDispatch    = "dispatch"
	rowPaced       = "paced"
	rowBareSession = "bare-session"
	rowSignin      = "signin"
	rowEndToEnd    = "end-to-end"
	rowIdle        = "idle"
	rowAccounts    = "accounts"
	rowScaling     = "scaling"
	rowMillion     = "million"
)
