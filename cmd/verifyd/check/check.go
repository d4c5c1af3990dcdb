// Package check examines the settings and what they refer to, and suggests what to do. verifyd check shows
// all of it. A service refuses to start with what check calls an error on its machine or in its store, and
// with nothing that is elsewhere (outside.go).
package check

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/store"
	"verifyd/natsconf"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/provision"
	"verifyd/natsconf/storestate"
	"verifyd/natsconf/transfer"
)

const (
	// Timeout bounds all requests to the NATS server together; each request elsewhere is bounded by
	// outsideFor.
	Timeout = 30 * time.Second
	// skewWarning is the difference between two machines' clocks that is worth a warning; from
	// storetime.MaxSkew on a service judges nothing that others wrote.
	skewWarning = 500 * time.Millisecond
	// FullWarning is the share of the store's limit that calls for an operator; from storestate's storeHigh
	// on new sessions are refused.
	FullWarning = 0.8
)

// here lists the checks that need no server. Both check and serve run them.
var here = []func(*Survey, config.Config){checkEdge, checkGuard, checkDataDirectory,
	checkMasterKey, checkCopies}

// there lists the checks of a server that answers. Both check and serve run them.
var there = []func(*Survey, provision.Inspection, config.Config){checkEncryption, checkClock,
	checkLimits, checkStoreRoom, checkServers, checkTopology, checkQuorum, checkRetention}

// Run checks the settings that serve would get, and what they refer to: on this machine, at the server, and
// elsewhere. If probe is a callback_url, Run connects to it. If deep is set, it reads every record of an
// embedded store.
func (s *Survey) Run(ctx context.Context, from config.Settings, probe string, deep bool) {
	cfg, err := from.Config(zerolog.Nop())
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			what, do, _ := strings.Cut(line, "; ")
			s.err("configuration", do, "%s", what)
		}
		return // what follows would check other settings than those of serve
	}
	s.ok("configuration", "every setting is valid")
	for _, look := range here {
		look(s, cfg)
	}
	if deep {
		checkDeep(s, cfg.Store)
	}
	checkCertificates(s, cfg.Certificates)
	if s.Worst() != LevelError {
		checkReach(ctx, s, cfg)
	}
	checkCopyFolder(ctx, s, cfg)
	checkOutside(ctx, s, cfg, probe)
}

// checkCopyFolder checks the folder of the copy. The master key, and the store's name and earlier keys if the
// service runs, show whose copy is in it.
func checkCopyFolder(ctx context.Context, s *Survey, c config.Config) {
	if c.CopyTo == "" {
		return
	}
	of := transfer.CopierConfig{Dir: c.CopyTo, DataDir: c.Store.DataDir}
	of.Key, _ = c.Store.EmbeddedKey(false) // no store: no key, and a copy is not its own
	if conn, err := store.ConnectRunning(ctx, c.Store.DataDir, zerolog.Nop()); err == nil {
		defer conn.Close()
		if state, err := storestate.Read(ctx, conn); err == nil {
			of.Store = state.Store
		}
		if ring, err := storestate.OpenRing(ctx, conn, of.Key); err == nil {
			of.Rekeyed = ring.Changed()
		}
	}
	done := make(chan error, 1)
	go func() { done <- transfer.CheckCopy(of) }()
	select {
	case err := <-done:
		checkCopyFinding(s, c, err)
	case <-time.After(transfer.CopyStop):
		s.err("copy", "check its disk", "%q does not respond", c.CopyTo)
	}
}

func checkCopyFinding(s *Survey, c config.Config, err error) {
	refusal, refused := errors.AsType[*transfer.CopyRefusal](err)
	same, serr := embedded.SameFilesystem(c.Store.DataDir, c.CopyTo)
	if errors.Is(serr, fs.ErrNotExist) {
		same, _ = embedded.SameFilesystem(existing(c.Store.DataDir), c.CopyTo)
	}
	switch {
	case refused:
		s.err("copy", refusal.Instead, "%s %s", refusal.Dir, refusal.Why)
	case errors.Is(err, fs.ErrNotExist):
		s.err("copy", "mount its disk, or create the folder: the service does not", "there is no folder %q",
			c.CopyTo)
	case err != nil:
		s.err("copy", "let the user who runs the service write there", "%q: %s", c.CopyTo, config.Plain(err))
	case same:
		s.Warn("copy", "name a folder on another disk in VERIFYD_COPY_TO",
			"%q is on the filesystem of the store: the copy is lost with that disk", c.CopyTo)
	default:
		s.ok("copy", "%q", c.CopyTo)
	}
}

// checkReach checks the server: the external one, or that of a running service.
func checkReach(ctx context.Context, s *Survey, c config.Config) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	if c.Store.NATSURL == "" {
		if conn, err := store.ConnectRunning(ctx, c.Store.DataDir, zerolog.Nop()); err == nil {
			defer conn.Close()
			checkServer(ctx, s, conn, c)
			return
		}
		s.ok("server", "no service runs on this directory; its server starts with the service")
		return
	}
	try, stop := context.WithTimeout(ctx, Timeout/3)
	defer stop()
	conn, err := natsconf.Connect(try, natsconf.ConnectOptions{
		URL: c.Store.NATSURL, CredsFile: c.Store.NATSCreds, RootCAs: c.Store.NATSRoots, Name: "verifyd check",
		Log: zerolog.Nop(),
	})
	if err != nil {
		s.err("server", "check VERIFYD_NATS_URL and VERIFYD_NATS_CREDS, and that the server is up and "+
			"reachable from here", "%s", err)
		return
	}
	defer conn.Close()
	checkServer(ctx, s, conn, c)
	checkEachServer(ctx, s, conn)
}

// RefuseHere runs the checks of serve before it begins.
func RefuseHere(c config.Config) error {
	var s Survey
	for _, look := range here {
		look(&s, c)
	}
	return s.refusal()
}

// RefuseThere runs the checks of serve on the server that it has reached.
func RefuseThere(ctx context.Context, conn *natsconf.Conn, c config.Config) error {
	var s Survey
	if err := askServer(ctx, &s, conn, c); err != nil {
		// The streams existed a moment ago. One without a leader does not answer for a while, and the
		// connection may be lost: a running service waits for both, so they do not end its start.
		c.Log.Warn().Err(err).Msg("what the NATS server allows could not be looked at, and the start " +
			"goes on; verifyd check looks again")
	}
	return s.refusal()
}

func checkEdge(s *Survey, c config.Config) {
	switch {
	case !c.Edge:
		s.ok("base URL", "this process runs no edge")
	case strings.HasPrefix(c.BaseURL, "https://"):
		s.ok("base URL", "%s", c.BaseURL)
	case c.BaseURL == "":
		s.Warn("base URL", "set VERIFYD_BASE_URL to the address that users open",
			"not set: links will name localhost, which works only on this machine")
	default:
		s.Warn("base URL", "put a TLS proxy in front and name its https address",
			"%s is not https: a user's cookies and links can be read on the way", c.BaseURL)
	}
	checkSubjectMatch(s, c)
	if c.DevForLive {
		s.Warn("networks", "leave VERIFYD_DEV_NETWORK out in production",
			"the dev network is on for live sessions: anybody who reaches it can sign in as anybody")
	}
	if c.DevDashboard {
		s.Warn("networks", "leave VERIFYD_DEV_NETWORK_DASHBOARD out in production",
			"the dev network leads into the dashboard: anybody who reaches it can log in as anybody")
	}
}

// checkDataDirectory checks the folder of an embedded store.
func checkDataDirectory(s *Survey, c config.Config) {
	dir := c.Store.DataDir
	if c.Store.NATSURL != "" {
		return
	}
	if c.Store.Sync == embedded.SyncInterval {
		s.Warn("sync", "leave VERIFYD_SYNC at always unless that is acceptable",
			"interval: a power cut can lose up to two minutes of what was acknowledged")
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		checkWritable(s, existing(dir), false, "there is no store in %q yet; the first start creates one",
			dir)
	case err != nil:
		s.err("data directory", "name a folder that this user can use in VERIFYD_DATA_DIR", "%q: %s", dir,
			config.Plain(err))
	case !info.IsDir():
		s.err("data directory", "name a folder in VERIFYD_DATA_DIR", "%q is not a folder", dir)
	default:
		if access, ok := errors.AsType[*store.AccessError](store.CheckAccess(dir)); ok {
			s.err("data directory", access.Do, "%s", access.Wrong)
			return
		}
		checkWritable(s, dir, embedded.HasStore(dir), "%q", dir)
	}
}

// existing returns the nearest existing parent folder: what is missing below it will be created.
func existing(dir string) string {
	for {
		above := filepath.Dir(dir)
		if _, err := os.Stat(above); err == nil || above == dir {
			return above
		}
		dir = above
	}
}

// checkMasterKey looks for the key that seals what is stored.
func checkMasterKey(s *Survey, c config.Config) {
	switch {
	case c.Store.NATSURL != "":
		if _, err := c.Store.ExternalKey(); err != nil {
			s.err("master key",
				"set VERIFYD_SECRET_KEY or VERIFYD_SECRET_KEY_FILE, the same for all processes", "%s", err)
			return
		}
	case !embedded.HasStore(c.Store.DataDir):
		return // the first start creates one
	default:
		_, err := c.Store.EmbeddedKey(false)
		if errors.Is(err, fs.ErrPermission) {
			s.err("master key", "let the user who runs the service read it", "%s", err)
			return
		}
		if err != nil {
			s.err("master key", "put back the key that the store was created with", "%s", err)
			return
		}
	}
	s.ok("master key", "there is one")
}

// checkCopies checks how many replicas an external store has.
func checkCopies(s *Survey, c config.Config) {
	if c.Store.NATSURL != "" && c.Store.Topology.Replicas == 1 {
		s.Warn("replicas", "use VERIFYD_REPLICAS=3 on a cluster", "1: what is acknowledged is as "+
			"durable as that one server's own sync setting (2 minutes by default)")
	}
}

// checkWritable tries to write as the service will. An existing store is opened even if space is low, so that
// its open sessions can end.
func checkWritable(s *Survey, dir string, isStore bool, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	f, err := os.CreateTemp(dir, ".verifyd-check-")
	if err != nil {
		s.err("data directory", "let the user who runs the service write there", "%s: %s", what,
			config.Plain(err))
		return
	}
	_ = f.Close()
	_ = os.Remove(f.Name())
	free, err := embedded.FreeBytes(dir)
	switch {
	case err != nil:
		s.ok("data directory", "%s", what)
	case free < storestate.MinFreeBytes && !isStore:
		s.err("data directory", "free some space, or name another disk in VERIFYD_DATA_DIR", "%s: %d MiB "+
			"are free there; with less than %d no session is accepted", what, free>>20,
			storestate.MinFreeBytes>>20)
	case free < storestate.MinStoreBytes:
		s.Warn("data directory", "free some space, or name another disk in VERIFYD_DATA_DIR", "%s: %d MiB "+
			"are free there; with less than %d no new session is accepted", what, free>>20,
			storestate.MinFreeBytes>>20)
	default:
		s.ok("data directory", "%s, %d MiB free", what, free>>20)
	}
}
