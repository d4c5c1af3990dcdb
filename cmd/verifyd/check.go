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
	// checkFor bounds all questions to the NATS server together; each one to the outside has outsideFor.
	checkFor = 30 * time.Second
	// skewWarning is from where two machines' instants are worth a look; from natsconf.SkewError on claims and expiries go wrong.
	skewWarning = 500 * time.Millisecond
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

	JSON  bool   `env:"-" name:"json" help:"Print the findings as one JSON document."`
	Probe string `env:"-" placeholder:"URL" help:"A callback_url to connect to as a callback would, without sending anything."`
}

// errCheck is returned where a finding is an error: verifyd serve would not start, or not work.
var errCheck = errors.New("errors were found; verifyd serve would not start, or not work, until they are mended")

// Run checks the settings that serve would get, and what they lead to, and changes nothing.
func (k checkCmd) Run(ctx context.Context, c console) error {
	var s survey
	s.run(ctx, k.settings, k.Probe)
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

// here is the table of what can be looked at without a server. Both check and serve go through it.
var here = []func(*survey, config){(*survey).edge, (*survey).guard, (*survey).dataDirectory, (*survey).masterKey, (*survey).copies}

// there is the table of what a server that answers is asked. Both check and serve go through it.
var there = []func(*survey, natsconf.Inspection, config){(*survey).encryption, (*survey).clock, (*survey).limits, (*survey).room, (*survey).topology}

func (s *survey) run(ctx context.Context, from settings, probe string) {
	cfg, err := from.config(zerolog.Nop())
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			what, do, _ := strings.Cut(line, "; ")
			s.err("configuration", do, "%s", what)
		}
		return // what follows would check something else than what serve gets
	}
	s.ok("configuration", "every setting is valid")
	for _, look := range here {
		look(s, cfg)
	}
	if s.worst() != levelError {
		s.reach(ctx, cfg)
	}
	s.outside(ctx, cfg, probe)
}

// reach looks at the server: the external one, or that of a service that runs.
func (s *survey) reach(ctx context.Context, c config) {
	ctx, cancel := context.WithTimeout(ctx, checkFor)
	defer cancel()
	if c.store.natsURL == "" {
		if conn, err := connectRunning(ctx, c.store.dataDir, zerolog.Nop()); err == nil {
			defer conn.Close()
			s.server(ctx, conn, c)
			return
		}
		s.ok("server", "no service runs on this directory; its server starts with the next one")
		return
	}
	try, stop := context.WithTimeout(ctx, checkFor/3)
	defer stop()
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

// refusal gives what serve refuses to start with: everything that check calls an error.
func (s *survey) refusal() error {
	var f faults
	for _, found := range s.findings {
		if found.Level == levelError {
			f = append(f, fmt.Errorf("%s: %s; %s", found.Area, found.Detail, found.Do))
		}
	}
	if len(f) == 0 {
		return nil
	}
	return usageError{f.err()}
}

// refuseHere is what serve asks before it begins.
func refuseHere(c config) error {
	var s survey
	for _, look := range here {
		look(&s, c)
	}
	return s.refusal()
}

// refuseThere is what serve asks of the server that it has reached.
func refuseThere(ctx context.Context, conn *natsconf.Conn, c config) error {
	var s survey
	if err := s.look(ctx, conn, c); err != nil {
		// The streams were there a moment ago. What has no leader answers nothing for a while, and the connection may just be away: that
		// the service waits for while it runs, so its start does not end by it.
		c.log.Warn().Err(err).Msg("what the NATS server allows could not be looked at, and the start goes on; verifyd check looks again")
	}
	return s.refusal()
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

// dataDirectory looks at the folder of an embedded store.
func (s *survey) dataDirectory(c config) {
	dir := c.store.dataDir
	if c.store.natsURL != "" {
		return
	}
	if c.store.sync == natsconf.SyncInterval {
		s.warn("sync", "leave VERIFYD_SYNC at always unless that is acceptable", "interval: a power cut can take back up to two minutes of what was acknowledged")
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.writable(existing(dir), false, "there is no store in %q yet; the first start makes one", dir)
	case err != nil:
		s.err("data directory", "name a folder that this user can use in VERIFYD_DATA_DIR", "%q: %s", dir, plain(err))
	case !info.IsDir():
		s.err("data directory", "name a folder in VERIFYD_DATA_DIR", "%q is not a folder", dir)
	default:
		s.writable(dir, natsconf.HasStore(dir), "%q", dir)
	}
}

// existing gives the nearest folder above that is there: what is missing below it is made.
func existing(dir string) string {
	for {
		above := filepath.Dir(dir)
		if _, err := os.Stat(above); err == nil || above == dir {
			return above
		}
		dir = above
	}
}

// masterKey looks for the key that seals what is stored.
func (s *survey) masterKey(c config) {
	switch {
	case c.store.natsURL != "":
		if _, err := c.store.externalKey(); err != nil {
			s.err("master key", "set VERIFYD_SECRET_KEY or VERIFYD_SECRET_KEY_FILE, the same for all processes", "%s", err)
			return
		}
	case !natsconf.HasStore(c.store.dataDir):
		return // the first start makes one
	default:
		if _, err := c.store.embeddedKey(false); err != nil {
			s.err("master key", "put back the key that the store was made with", "%s", err)
			return
		}
	}
	s.ok("master key", "there is one")
}

// copies looks at how many copies an external store has.
func (s *survey) copies(c config) {
	if c.store.natsURL != "" && c.store.topology.Replicas == 1 {
		s.warn("replicas", "use VERIFYD_REPLICAS=3 on a cluster", "1: what is acknowledged is as durable as that one server's own sync setting (2 minutes by default)")
	}
}

// writable tries what the service will do. A store that is there is opened with little room, too: what is open in it can come to its end.
func (s *survey) writable(dir string, isStore bool, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
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
	case free < natsconf.LeastFreeBytes && !isStore:
		s.err("data directory", "make room, or name another disk in VERIFYD_DATA_DIR", "%s: %d MiB are free there, with less than %d no session is taken", what, free>>20, natsconf.LeastFreeBytes>>20)
	case free < natsconf.LeastStoreBytes:
		s.warn("data directory", "make room, or name another disk in VERIFYD_DATA_DIR", "%s: %d MiB are free there, with less than %d no new session is taken", what, free>>20, natsconf.LeastFreeBytes>>20)
	default:
		s.ok("data directory", "%s, %d MiB free", what, free>>20)
	}
}
