package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/rs/zerolog"

	"verifyd/natsconf"
	"verifyd/natsconf/carry"
	"verifyd/natsconf/seal"
	"verifyd/sessions"
	"verifyd/sessions/roster"
)

type backupCmd struct {
	storeCmd `embed:""`

	File          string `arg:"" help:"File to write; it must not be there yet. - is standard output."`
	WithMasterKey bool   `env:"-" help:"Put the master key into the backup: whoever has the file can then read everything in it."`
}

// Run writes everything that the store holds into one file, while the service runs.
func (b backupCmd) Run(ctx context.Context, c console) error {
	return b.look(ctx, c, func(st *store) error {
		if b.File == "-" {
			return b.write(ctx, c, st, c.out)
		}
		return b.toFile(ctx, c, st)
	})
}

// toFile leaves nothing behind where it fails. A kill leaves a part, which is no backup: it lacks its end.
func (b backupCmd) toFile(ctx context.Context, c console, st *store) (err error) {
	f, err := os.OpenFile(b.File, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return usageError{fmt.Errorf("FILE: %s is there already; name a new file", b.File)}
	}
	if err != nil {
		return usageError{fmt.Errorf("FILE: %s: %s", b.File, plain(err))}
	}
	w := bufio.NewWriterSize(f, 1<<20)
	err = b.write(ctx, c, st, w)
	if err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = os.Remove(b.File)
		return fmt.Errorf("write the backup: %w", err)
	}
	return nil
}

func (b backupCmd) write(ctx context.Context, c console, st *store, w io.Writer) error {
	standing, err := st.conn.Standing(ctx)
	if err != nil {
		return err
	}
	running, err := b.served(ctx, st)
	if err != nil {
		return err
	}
	h := carry.Header{
		Running: running, Store: standing.Store, CreatedAt: time.Now().UTC(), Build: versionText(),
		Leaving: standing.State != "" && standing.State != natsconf.StandingOpen,
	}
	if b.WithMasterKey {
		h.MasterKey = st.key.Encode()
	}
	skip, err := st.staysBehind(ctx)
	if err != nil {
		return err
	}
	held, err := carry.Backup(ctx, st.conn, everything(), skip, st.key, h, w, func() error {
		if running {
			return nil
		}
		began, err := b.served(ctx, st)
		if err == nil && began {
			err = errBegan
		}
		return err
	})
	if err != nil {
		return err
	}
	tellHeld(c.err, held)
	return nil
}

// errBegan is returned where the backup says that nothing ran, which is no longer so.
var errBegan = errors.New("a service has begun to run while the backup was made; make it again while the service runs, or, for restore --go-on, while it is stopped")

// served says whether a service runs on the store. A process that is cut off from external servers does not answer.
func (b backupCmd) served(ctx context.Context, st *store) (bool, error) {
	if b.NATSURL == "" {
		return st.embedded == nil, nil // where this process does not hold the data directory, a service does, however slow it is to answer
	}
	return roster.Anybody(ctx, st.conn)
}

// everything lists all assets of a store.
func everything() []carry.Asset {
	return carry.Assets(natsconf.NewTopology(natsconf.TopologyOptions{}))
}

func tellHeld(w io.Writer, held []carry.Held) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "ASSET\tMESSAGES")
	for _, h := range held {
		_, _ = fmt.Fprintf(t, "%s\t%d\n", h.Asset, h.Count)
	}
	_ = t.Flush()
}

type restoreCmd struct {
	storeCmd `embed:""`

	File string `arg:"" help:"A backup made by verifyd backup."`
	GoOn bool   `env:"-" help:"The service was stopped before the backup and has not run since: due callbacks are sent, open sessions can be completed."`
}

// afterBackup are the assets that are not restored unless nothing happened after the backup: who logged out must not be logged in again,
// and an idempotency key would lead to a session that has ended.
var afterBackup = []string{natsconf.BucketStream(natsconf.BucketLogins), natsconf.BucketStream(natsconf.BucketIdempotency)}

// Run fills a new store from a backup.
func (r restoreCmd) Run(ctx context.Context, c console) error {
	file, err := os.Open(r.File)
	if err != nil {
		return usageError{fmt.Errorf("FILE: %s: %s", r.File, plain(err))}
	}
	defer func() { _ = file.Close() }()
	backup, err := carry.Open(file)
	if err != nil {
		return usageError{fmt.Errorf("FILE: %s: %w", r.File, err)}
	}
	if r.GoOn && backup.Header.Leaving {
		return usageError{fmt.Errorf("--go-on: %s is of a store that was moved elsewhere, or about to be: what was due in it is sent from there; restore it without --go-on", r.File)}
	}
	if r.GoOn && backup.Header.Running {
		return usageError{fmt.Errorf("--go-on: the service ran while %s was made, so what was due in it may have been sent since; restore it without --go-on, or make another backup while nothing runs", r.File)}
	}
	if r.NATSURL != "" && r.SecretKey == "" && r.SecretKeyFile == "" {
		r.SecretKey = backup.Header.MasterKey
	}
	var f faults
	cfg := r.config(&f)
	if err := f.err(); err != nil {
		return usageError{err}
	}
	key, err := r.key(cfg, backup.Header)
	if err != nil {
		return err
	}
	held, err := backup.Check(key)
	if err != nil {
		return usageError{fmt.Errorf("FILE: %s: %w; nothing was restored", r.File, err)}
	}
	tellHeld(c.err, held)
	return r.fill(ctx, c, cfg, backup, key)
}

// key gives the master key: that of the settings, of the data directory, or of the backup.
func (r restoreCmd) key(cfg storeConfig, h carry.Header) (seal.Key, error) {
	if h.MasterKey != "" {
		return seal.ParseKey(h.MasterKey)
	}
	if cfg.natsURL != "" {
		return cfg.externalKey()
	}
	return cfg.embeddedKey(false) // never a new one: it would open nothing
}

func (r restoreCmd) fill(ctx context.Context, c console, cfg storeConfig, backup *carry.File, key seal.Key) error {
	if cfg.natsURL == "" && cfg.key == nil && cfg.keyFile == "" {
		if err := os.MkdirAll(cfg.dataDir, 0o700); err != nil {
			return fmt.Errorf("make the data directory: %w", err)
		}
		if err := seal.Save(filepath.Join(cfg.dataDir, secretFile), key); err != nil {
			return err
		}
	} else {
		cfg.key, cfg.keyFile = &key, ""
	}
	st, err := openStore(ctx, cfg, zerolog.New(c.err).Level(zerolog.ErrorLevel), toFill)
	if errors.Is(err, natsconf.ErrLocked) {
		return usageError{fmt.Errorf("%w: a backup is restored into a new store; name an empty VERIFYD_DATA_DIR (--data-dir)", err)}
	}
	if err != nil {
		return err
	}
	defer st.close()
	assets := everything()
	if err := r.begin(ctx, st, assets, backup.Header); err != nil {
		return err
	}
	if err := backup.Restore(ctx, st.conn, r.wanted(assets), key); err != nil {
		return err
	}
	return r.open(ctx, c, st, backup.Header)
}

// wanted are the assets that are restored.
func (r restoreCmd) wanted(assets []carry.Asset) []carry.Asset {
	if r.GoOn {
		return assets
	}
	var wanted []carry.Asset
	for _, a := range assets {
		if a.Stream != afterBackup[0] && a.Stream != afterBackup[1] {
			wanted = append(wanted, a)
		}
	}
	return wanted
}

// filledFrom names the backup and how it is restored, in the standing of the store that is filled: who goes on with --go-on where a run
// without it was interrupted would send what that run may have ended already, and the other way round would keep logins.
func (r restoreCmd) filledFrom(h carry.Header) string {
	if r.GoOn {
		return h.ID + " --go-on"
	}
	return h.ID
}

// begin marks the store as being filled from the backup, or makes sure that it is.
func (r restoreCmd) begin(ctx context.Context, st *store, assets []carry.Asset, h carry.Header) error {
	standing, err := st.conn.Standing(ctx)
	if err != nil {
		return err
	}
	if standing.State == natsconf.StandingFilling {
		if standing.Other != r.filledFrom(h) {
			return usageError{&natsconf.StandingError{Standing: standing}}
		}
		return nil
	}
	empty, err := st.empty(ctx, assets)
	if err != nil {
		return err
	}
	if !empty {
		return usageError{errors.New("this store holds data already; a backup is restored into a new one")}
	}
	_, err = st.conn.SetStanding(ctx, standing, natsconf.StandingFilling, r.filledFrom(h), "a backup of "+h.CreatedAt.Format(time.RFC3339))
	return err
}

// open ends what had not ended in the backup, unless nothing happened since, and lets the store be served.
func (r restoreCmd) open(ctx context.Context, c console, st *store, h carry.Header) error {
	deliveries, sessions := 0, 0
	if !r.GoOn {
		var err error
		if deliveries, sessions, err = st.closeUnfinished(ctx, h.CreatedAt); err != nil {
			return err
		}
	}
	if err := acknowledgeEnded(ctx, st); err != nil {
		return err
	}
	standing, err := st.conn.Standing(ctx)
	if err != nil {
		return err
	}
	if _, err := st.conn.SetStanding(ctx, standing, natsconf.StandingOpen, "", ""); err != nil {
		return err
	}
	if r.GoOn {
		_, err = fmt.Fprintln(c.err, "The store is as it was at the backup; due callbacks are sent as soon as it is served.")
		return err
	}
	_, err = fmt.Fprintf(c.err, "The store is as it was at %s, but that whatever had not ended then has ended now: %d deliveries are unknown, %d open sessions have expired.\n"+
		"What was revoked, rolled, removed or erased after that is not: look at verifyd key list, verifyd operator list and verifyd account list, and erase again whom you have erased since.\n",
		h.CreatedAt.Format(time.RFC3339), deliveries, sessions)
	return err
}

// closeUnfinished ends what had not ended when the store was written down: a second POST must not follow from a restore.
func (s *store) closeUnfinished(ctx context.Context, written time.Time) (deliveries, open int, err error) {
	completions := natsconf.NewWriter(s.conn, natsconf.StreamCompletions)
	pending := natsconf.NewWriter(s.conn, natsconf.BucketStream(natsconf.BucketSessions))
	writing := startLayer("command", zerolog.Nop(), newActor("completions writer", completions), newActor("sessions writer", pending))
	defer writing.stop()
	st := sessions.NewStore(sessions.Config{Conn: s.conn, Completions: completions, Pending: pending, Key: s.key})
	return st.CloseUnfinished(ctx, written)
}
