package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"verifyd/natsconf"
)

const (
	// checkFor bounds a whole check.
	checkFor = 30 * time.Second
	// skewWarning is from where two machines' instants are worth a look, and skewError from where claims and expiries go wrong: a
	// claim's deadline is seconds away.
	skewWarning = 500 * time.Millisecond
	skewError   = 5 * time.Second
	// fullWarning is the share of the store's limit that calls for an operator; from natsconf's 0.9 on no new session is taken.
	fullWarning = 0.8
)

// level is how bad a finding is.
type level string

const (
	levelOK      level = "ok"
	levelWarning level = "warning"
	levelError   level = "error"
)

// finding is one line of a check.
type finding struct {
	Level  level  `json:"level"`
	Area   string `json:"area"`
	Detail string `json:"detail"`
	Do     string `json:"do,omitempty"` // what to do; empty where all is well
}

type checkCmd struct {
	settings `embed:""`

	JSON bool `env:"-" name:"json" help:"Print the findings as one JSON document."`
}

// errCheck is returned where a finding is an error: verifyd serve would not start, or not work.
var errCheck = errors.New("errors were found; verifyd serve would not start, or not work, until they are mended")

// Run checks the settings that serve would get, and what they lead to, and changes nothing.
func (k checkCmd) Run(ctx context.Context, c console) error {
	ctx, cancel := context.WithTimeout(ctx, checkFor)
	defer cancel()
	var s survey
	s.run(ctx, k.settings)
	if err := s.tell(c, k.JSON); err != nil {
		return err
	}
	if s.worst() == levelError {
		return errCheck
	}
	return nil
}

// survey gathers findings.
type survey struct{ findings []finding }

func (s *survey) ok(area, format string, args ...any) {
	s.findings = append(s.findings, finding{levelOK, area, fmt.Sprintf(format, args...), ""})
}

func (s *survey) warn(area, do, format string, args ...any) {
	s.findings = append(s.findings, finding{levelWarning, area, fmt.Sprintf(format, args...), do})
}

func (s *survey) err(area, do, format string, args ...any) {
	s.findings = append(s.findings, finding{levelError, area, fmt.Sprintf(format, args...), do})
}

func (s *survey) worst() level {
	worst := levelOK
	for _, f := range s.findings {
		if f.Level == levelError || f.Level == levelWarning && worst == levelOK {
			worst = f.Level
		}
	}
	return worst
}

func (s *survey) tell(c console, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(c.out)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(struct {
			Worst    level     `json:"worst"`
			Findings []finding `json:"findings"`
		}{s.worst(), s.findings})
	}
	for _, f := range s.findings {
		if _, err := fmt.Fprintf(c.out, "%-8s %-14s %s\n", f.Level, f.Area, f.Detail); err != nil {
			return err
		}
		if f.Do != "" {
			_, _ = fmt.Fprintf(c.out, "%-8s %-14s → %s\n", "", "", f.Do)
		}
	}
	return nil
}

func (s *survey) run(ctx context.Context, from settings) {
	cfg, err := from.config(zerolog.Nop())
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			what, do, _ := strings.Cut(line, "; ")
			s.err("configuration", do, "%s", what)
		}
		return // what follows would check something else than what serve gets
	}
	s.ok("configuration", "every setting is valid")
	s.edge(cfg)
	if cfg.store.natsURL == "" {
		s.embedded(ctx, cfg)
	} else {
		s.external(ctx, cfg)
	}
}

func (s *survey) edge(c config) {
	switch {
	case !c.edge:
		s.ok("base URL", "this process runs no edge")
	case strings.HasPrefix(c.baseURL, "https://"):
		s.ok("base URL", "%s", c.baseURL)
	case c.baseURL == "":
		s.warn("base URL", "set VERIFYD_BASE_URL to the address that users open", "not set: links will name localhost, which works on this machine only")
	default:
		s.warn("base URL", "put a TLS proxy in front and name its https address", "%s is not https: a user's cookies and links can be read on the way", c.baseURL)
	}
	if c.devNetwork != "" {
		s.warn("networks", "leave VERIFYD_DEV_NETWORK out in production", "the dev network is on: anybody who reaches it can sign in as anybody")
	}
}

// embedded looks at the data directory, and at the server of a running service where there is one.
func (s *survey) embedded(ctx context.Context, c config) {
	dir := c.store.dataDir
	if c.store.sync == natsconf.SyncInterval {
		s.warn("sync", "leave VERIFYD_SYNC at always unless that is acceptable", "interval: a power cut can take back up to two minutes of what was acknowledged")
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.writable(filepath.Dir(dir), "there is no store in %q yet; the first start makes one", dir)
		return
	case err != nil:
		s.err("data directory", "name a folder that this user can use in VERIFYD_DATA_DIR", "%q: %s", dir, plain(err))
		return
	case !info.IsDir():
		s.err("data directory", "name a folder in VERIFYD_DATA_DIR", "%q is not a folder", dir)
		return
	}
	s.writable(dir, "%q", dir)
	if natsconf.HasStore(dir) {
		if _, err := c.store.embeddedKey(false); err != nil {
			s.err("master key", "put back the key that the store was made with", "%s", err)
			return
		}
		s.ok("master key", "there is one")
	}
	conn, err := connectRunning(ctx, dir, zerolog.Nop())
	if err != nil {
		s.ok("server", "no service runs on this directory; its server starts with the next one")
		return
	}
	defer conn.Close()
	s.server(ctx, conn, c)
}

// writable tries what the service will do.
func (s *survey) writable(dir, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	if dir == "" {
		dir = "."
	}
	f, err := os.CreateTemp(dir, ".verifyd-check-")
	if err != nil {
		s.err("data directory", "let the user who runs the service write there", "%s: %s", what, plain(err))
		return
	}
	_ = f.Close()
	_ = os.Remove(f.Name())
	free, err := natsconf.FreeBytes(dir)
	switch {
	case err != nil:
		s.ok("data directory", "%s", what)
	case free < natsconf.LeastStoreBytes:
		s.err("data directory", "make room, or name another disk in VERIFYD_DATA_DIR", "%s: %d MiB are free there, at least %d are needed", what, free>>20, natsconf.LeastStoreBytes>>20)
	default:
		s.ok("data directory", "%s, %d MiB free", what, free>>20)
	}
}

func (s *survey) external(ctx context.Context, c config) {
	if _, err := c.store.externalKey(); err != nil {
		s.err("master key", "set VERIFYD_SECRET_KEY or VERIFYD_SECRET_KEY_FILE, the same for all processes", "%s", err)
	} else {
		s.ok("master key", "there is one")
	}
	if c.store.topology.Replicas == 1 {
		s.warn("replicas", "use VERIFYD_REPLICAS=3 on a cluster", "1: what is acknowledged is as durable as that one server's own sync setting (2 minutes by default)")
	}
	try, cancel := context.WithTimeout(ctx, checkFor/3)
	defer cancel()
	conn, err := natsconf.Connect(try, natsconf.ConnectOptions{
		URL: c.store.natsURL, CredsFile: c.store.natsCreds, RootCAs: c.store.natsRoots, Name: "verifyd check", Log: zerolog.Nop(),
	})
	if err != nil {
		s.err("server", "check VERIFYD_NATS_URL and VERIFYD_NATS_CREDS, and that the server is up and reachable from here", "%s", err)
		return
	}
	defer conn.Close()
	s.server(ctx, conn, c)
}

// server looks at a server that answers.
func (s *survey) server(ctx context.Context, conn *natsconf.Conn, c config) {
	in, err := natsconf.Ensurer{Conn: conn, Topology: natsconf.NewTopology(c.store.topology)}.Inspect(ctx)
	if old, ok := errors.AsType[*natsconf.VersionError](err); ok {
		s.err("server", "upgrade the NATS server", "%s", old)
		return
	}
	if err != nil {
		s.err("server", "JetStream must be enabled for these credentials, with leave to use its API ($JS.API.>)", "%s", err)
		return
	}
	where := in.URL
	if in.Cluster != "" {
		where += ", cluster " + in.Cluster
	}
	s.ok("server", "NATS %s at %s, %s away", in.Version, where, in.RTT.Round(10*time.Microsecond))
	if c.store.natsURL != "" && !in.TLS {
		s.warn("server", "use tls:// in VERIFYD_NATS_URL where the way to it is not private", "the connection to NATS is not encrypted")
	}
	s.clock(in)
	s.room(in)
	s.topology(in)
}

func (s *survey) clock(in natsconf.Inspection) {
	skew := in.Skew.Abs()
	switch {
	case !in.SkewKnown:
	case skew >= skewError:
		s.err("clock", "keep both machines' clocks by NTP", "the server's clock is %s off this machine's: claims and expiries would be judged wrongly", in.Skew)
	case skew >= skewWarning:
		s.warn("clock", "keep both machines' clocks by NTP", "the server's clock is %s off this machine's", in.Skew)
	default:
		s.ok("clock", "within %s of the server's", max(skew, in.RTT).Round(time.Millisecond)+time.Millisecond)
	}
}

func (s *survey) room(in natsconf.Inspection) {
	if in.Limit <= 0 {
		s.ok("store", "%d MiB used, no limit in the account", in.Used>>20)
		return
	}
	share := float64(in.Used) / float64(in.Limit)
	if share >= fullWarning {
		s.warn("store", "raise the limit, or lower VERIFYD_KEEP_RESULTS; from 90 % on no new session is taken", "%.0f %% of %d MiB are used", 100*share, in.Limit>>20)
		return
	}
	s.ok("store", "%d of %d MiB used", in.Used>>20, in.Limit>>20)
}

func (s *survey) topology(in natsconf.Inspection) {
	var missing []string
	for _, d := range in.Differences {
		switch d.Kind {
		case natsconf.Missing:
			missing = append(missing, d.Asset)
		case natsconf.Updated:
			s.warn("topology", "nothing, if this is meant; the next start of the service changes it", "%s: %s is %s, these settings ask for %s", d.Asset, d.Field, d.Have, d.Want)
		case natsconf.Drift:
			s.err("topology", "move the data to a fresh stream, or restore the setting", "%s: %s is %s on the server, verifyd needs %s", d.Asset, d.Field, d.Have, d.Want)
		}
	}
	switch {
	case len(missing) > 0:
		s.ok("topology", "the next start makes %s", strings.Join(missing, ", "))
	case len(in.Differences) == 0:
		s.ok("topology", "as it should be")
	}
}
