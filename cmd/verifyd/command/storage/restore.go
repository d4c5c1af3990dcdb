package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"

	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/store"
	"verifyd/cmd/verifyd/table"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/storestate"
	"verifyd/natsconf/topology"
	"verifyd/natsconf/transfer"
	"verifyd/sessions"
	"verifyd/sessions/erasure"
	"verifyd/sessions/facts"
	sessionstore "verifyd/sessions/store"
)

// Restore fills a new store from a backup.
type Restore struct {
	command.Local `embed:""`
	table.Listing `embed:""`

	File string `arg:"" help:"A backup written by verifyd backup, or the folder of a copy (VERIFYD_COPY_TO)."`
	GoOn bool   `help:"The service was stopped before the backup and has not run since: due callbacks are sent, open sessions can be completed."`
}

// afterBackup are the assets that are not restored unless nothing happened after the backup: a user who
// logged out must not be logged in again, and an idempotency key would lead to a session that has ended.
var afterBackup = []string{
	topology.BucketStream(topology.BucketLogins), topology.BucketStream(topology.BucketIdempotency),
}

// Run fills a new store from a backup.
func (r Restore) Run(ctx context.Context, c command.Console) error {
	backup, err := transfer.OpenSource(r.File)
	if err != nil {
		if _, ok := errors.AsType[*os.PathError](err); ok {
			err = errors.New(config.Plain(err))
		}
		return config.Usage(fmt.Errorf("FILE: %s: %w", r.File, err))
	}
	defer func() { _ = backup.Close() }()
	if err := r.mayGoOn(backup.Head()); err != nil {
		return err
	}
	if r.NATSURL != "" && r.SecretKey == "" && r.SecretKeyFile == "" {
		r.SecretKey = backup.Head().MasterKey
	}
	var f config.Faults
	cfg := r.Config(&f)
	if err := f.Err(); err != nil {
		return config.Usage(err)
	}
	key, err := r.key(cfg, backup.Head())
	if err != nil {
		return err
	}
	erased := map[sessions.ID]bool{}
	held, err := backup.Check(key, func(stream, subject string) {
		if id, ok := erasure.ErasedBy(subject); ok && stream == topology.BucketStream(topology.BucketStore) {
			erased[id] = true
		}
	})
	if err != nil {
		return config.Usage(fmt.Errorf("FILE: %s: %w; nothing was restored", r.File, err))
	}
	return r.fill(ctx, c, cfg, backup, key, restoring{held: held, skip: isNotRestored(erased)})
}

// restoring is what is known about a backup before anything of it is stored.
type restoring struct {
	held  []transfer.Held
	skip  transfer.Skip
	again bool // a previous run was interrupted
}

// mayGoOn refuses --go-on if what was due may have been sent since.
func (r Restore) mayGoOn(h transfer.Header) error {
	switch {
	case !r.GoOn:
		return nil
	case h.Leaving:
		return config.Usage(fmt.Errorf(
			"--go-on: %s is of a store that was moved elsewhere, or about to be: what was due in it is "+
				"sent from there; restore it without --go-on", r.File))
	case h.Running:
		return config.Usage(fmt.Errorf(
			"--go-on: the service ran while %s was made, so what was due in it may have been sent "+
				"since; restore it without --go-on, or make another backup while nothing runs", r.File))
	default:
		return nil
	}
}

// isNotRestored excludes the check of the master key, which each store has of its own, and what is about
// sessions whose user was erased after they were copied.
func isNotRestored(erased map[sessions.ID]bool) transfer.Skip {
	return func(stream, subject string) bool {
		switch stream {
		case topology.BucketStream(topology.BucketAccounts):
			return subject == storestate.CheckSubject()
		case topology.StreamCompletions:
			return erased[facts.OfFact(subject)]
		case topology.StreamEvents:
			return erased[facts.OfEvent(subject)]
		default:
			return false
		}
	}
}

// key returns the master key: that of the settings, of the data directory, or of the backup.
func (r Restore) key(cfg config.Store, h transfer.Header) (secretbox.Key, error) {
	if h.MasterKey != "" {
		return secretbox.ParseKey(h.MasterKey)
	}
	if cfg.NATSURL != "" {
		return cfg.ExternalKey()
	}
	return cfg.EmbeddedKey(false) // never a new one: it would open nothing
}

func (r Restore) fill(ctx context.Context, c command.Console, cfg config.Store, backup transfer.Source,
	key secretbox.Key, v restoring) error {
	if cfg.NATSURL == "" && cfg.Key == nil && cfg.KeyFile == "" {
		if err := store.CheckAccess(cfg.DataDir); err != nil {
			return config.Usage(err)
		}
		if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
			return fmt.Errorf("create the data directory: %w", err)
		}
		if err := secretbox.Save(filepath.Join(cfg.DataDir, config.SecretFile), key); err != nil {
			return err
		}
	} else {
		cfg.Key, cfg.KeyFile = &key, ""
	}
	st, err := store.Open(ctx, cfg, zerolog.New(c.Err).Level(zerolog.ErrorLevel), store.ToFill)
	if errors.Is(err, embedded.ErrLocked) {
		return config.Usage(fmt.Errorf(
			"%w: a backup is restored into a new store; name an empty VERIFYD_DATA_DIR (--data-dir)", err))
	}
	if err != nil {
		return err
	}
	defer st.Close()
	assets := store.Assets()
	h := backup.Head()
	if v.again, err = r.Begin(ctx, st, assets, h); err != nil {
		return err
	}
	reports, err := backup.Restore(ctx, st.Conn, r.wanted(assets), v.skip, key)
	if err == nil {
		err = st.Rebind(ctx)
	}
	if err != nil {
		return incomplete(err)
	}
	if err := r.printRestored(c, v.held, reports); err != nil {
		return incomplete(err)
	}
	return incomplete(r.open(ctx, c, st, h, v.again))
}

// incomplete adds to an error what to do with a partially filled store.
func incomplete(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w; the store is incomplete and cannot be served: run the same command again", err)
}

// printRestored prints what the backup held, and what of it is in the store now.
func (r Restore) printRestored(c command.Console, held []transfer.Held, reports []transfer.Report) error {
	restored := map[string]int{}
	for _, r := range reports {
		restored[r.Stream] = r.Filled
	}
	t := table.New("assets", "ASSET", "HELD", "RESTORED NOW:brought")
	for _, h := range held {
		t.Add(h.Asset, h.Count, restored[h.Asset])
	}
	out := c.Err
	if r.JSON {
		out = c.Out
	}
	if err := r.Print(out, t); err != nil {
		return err
	}
	_, err := fmt.Fprintln(c.Err,
		"What was not restored had expired, was overwritten or was there already"+leftOut(reports, held)+".")
	return err
}

// leftOut names the assets of the backup that were not to be restored.
func leftOut(reports []transfer.Report, held []transfer.Held) string {
	if len(reports) == len(held) {
		return ""
	}
	return ", or was a login or an idempotency key, which are not restored"
}

// wanted returns the assets to restore.
func (r Restore) wanted(assets []transfer.Asset) []transfer.Asset {
	if r.GoOn {
		return assets
	}
	var wanted []transfer.Asset
	for _, a := range assets {
		if a.Stream != afterBackup[0] && a.Stream != afterBackup[1] {
			wanted = append(wanted, a)
		}
	}
	return wanted
}

// filledFrom names the backup and how it is restored, in the state of the store that is filled: continuing
// with --go-on after an interrupted run without it would send what that run may have ended already, and the
// reverse would keep logins.
func (r Restore) filledFrom(h transfer.Header) string {
	if r.GoOn {
		return h.ID + " --go-on"
	}
	return h.ID
}

// Begin marks the store as being filled from the backup, if it is not yet, and reports whether it was before.
func (r Restore) Begin(ctx context.Context, st *store.Store, assets []transfer.Asset,
	h transfer.Header) (again bool, err error) {
	standing, err := storestate.Read(ctx, st.Conn)
	if err != nil {
		return false, err
	}
	if standing.State == storestate.StateFilling {
		if standing.Other != r.filledFrom(h) {
			return false, config.Usage(&storestate.Error{Record: standing})
		}
		return true, nil
	}
	empty, err := st.Empty(ctx, assets)
	if err != nil {
		return false, err
	}
	if !empty {
		return false, config.Usage(
			errors.New("this store already holds data; a backup is restored into a new one"))
	}
	_, err = storestate.Set(ctx, st.Conn, standing, storestate.StateFilling, r.filledFrom(h),
		"a "+kindOf(h)+" of "+h.CreatedAt.Format(time.RFC3339))
	return false, err
}

// open ends what had not ended in the backup, unless nothing happened since, and puts the store into service.
func (r Restore) open(ctx context.Context, c command.Console, st *store.Store, h transfer.Header,
	again bool) error {
	deliveries, sessions := 0, 0
	if !r.GoOn {
		if err := st.WithFacts(func(restored *sessionstore.Store) (err error) {
			deliveries, sessions, err = restored.CloseUnfinished(ctx, h.CreatedAt)
			return err
		}); err != nil {
			return err
		}
	}
	if err := st.AcknowledgeEnded(ctx); err != nil {
		return err
	}
	standing, err := storestate.Read(ctx, st.Conn)
	if err != nil {
		return err
	}
	if _, err := storestate.Set(ctx, st.Conn, standing, storestate.StateOpen, "", ""); err != nil {
		return err
	}
	if r.GoOn {
		_, err = fmt.Fprintln(c.Err,
			"The store is as it was at the "+kindOf(h)+"; due callbacks are sent as soon as it is served.")
		return err
	}
	_, err = io.WriteString(c.Err, endedText(h, deliveries, sessions, again))
	return err
}

// kindOf names what a store was restored from.
func kindOf(h transfer.Header) string {
	if h.IsCopy() {
		return "copy"
	}
	return "backup"
}

// endedText describes what a restore has ended, and what it could not know.
func endedText(h transfer.Header, deliveries, sessions int, again bool) string {
	at := h.CreatedAt.Format(time.RFC3339)
	text := fmt.Sprintf("The store is as it was at %s, except that nobody is logged in and that whatever "+
		"had not ended then has ended: %d deliveries are unknown now, and the %d sessions that were open "+
		"have expired.\n", at, deliveries, sessions)
	if again {
		text += "Deliveries that an interrupted run before this one has ended are not counted.\n"
	}
	if h.IsCopy() {
		text += "What was started, completed or delivered after that is not in it: sessions of those " +
			"seconds are not known here, or have expired.\n"
	}
	return text + "What was revoked, rolled, removed or erased after that is not: check verifyd key " +
		"list, verifyd operator list and verifyd account list, and again erase every user whom you " +
		"have erased since.\n"
}
