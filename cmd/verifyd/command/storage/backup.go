// Package storage has the commands on a store as a whole: move, backup and restore, recovery, erasing a user,
// and what several machines need to share one.
package storage

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/store"
	"verifyd/cmd/verifyd/table"
	"verifyd/cmd/verifyd/version"
	"verifyd/natsconf/fleet"
	"verifyd/natsconf/storestate"
	"verifyd/natsconf/transfer"
)

// Backup writes everything in the store into one file, while the service runs.
type Backup struct {
	command.Local `embed:""`
	table.Listing `embed:""`

	File          string `arg:"" help:"File to write; it must not exist yet. - is standard output."`
	WithMasterKey bool   `help:"Put the master key into the backup: whoever has the file can then read everything in it."`
}

// Run writes everything that the store holds into one file, while the service runs.
func (b Backup) Run(ctx context.Context, c command.Console) error {
	return b.Use(ctx, c, command.WhyRecords, func(st *store.Store) error {
		made, err := b.toFile(ctx, c, st)
		if err != nil {
			return err
		}
		if err := printContents(b.Listing, c, made.held, b.File == "-"); err != nil {
			return err
		}
		_, err = io.WriteString(c.Err, made.text(b.File))
		return err
	})
}

// madeBackup is a complete backup, and its path on the disk.
type madeBackup struct {
	header transfer.Header
	held   []transfer.Held
}

// text describes what can be done with it.
func (m madeBackup) text(file string) string {
	what := "The backup " + file
	if file == "-" {
		what = "The backup"
	}
	what += " is complete. "
	switch {
	case m.header.Leaving:
		return what + "It is of a store that was moved elsewhere, or is about to be: a store restored " +
			"from it sends nothing that was due.\n"
	case m.header.Running:
		return what + "The service ran meanwhile: a restore ends what is due or open in it, since " +
			"nobody knows what became of it.\n"
	default:
		return what + "No service ran meanwhile: as long as none has run since, verifyd restore --go-on " +
			"continues from it.\n"
	}
}

// toFile leaves nothing behind if it fails. A kill leaves a partial file, which is no backup: it lacks its
// end.
func (b Backup) toFile(ctx context.Context, c command.Console, st *store.Store) (made madeBackup, err error) {
	if b.File == "-" {
		return b.write(ctx, st, c.Out)
	}
	f, err := os.OpenFile(b.File, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return made, config.Usage(fmt.Errorf("FILE: %s exists already; name a new file", b.File))
	}
	if err != nil {
		return made, config.Usage(fmt.Errorf("FILE: %s: %s", b.File, config.Plain(err)))
	}
	w := bufio.NewWriterSize(f, 1<<20)
	made, err = b.write(ctx, st, w)
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
		return made, fmt.Errorf("write the backup: %w", err)
	}
	return made, nil
}

func (b Backup) write(ctx context.Context, st *store.Store, w io.Writer) (made madeBackup, err error) {
	standing, err := storestate.Read(ctx, st.Conn)
	if err != nil {
		return made, err
	}
	running, err := b.served(ctx, st)
	if err != nil {
		return made, err
	}
	h := transfer.Header{
		Running: running, Store: standing.Store, CreatedAt: st.Conn.Clock.Now().UTC(), Build: version.Text(),
		Leaving: standing.State != "" && standing.State != storestate.StateOpen, Rekeyed: st.Ring.Changed(),
	}
	if b.WithMasterKey {
		h.MasterKey = st.Key.Encode()
	}
	skip, err := st.StaysBehind(ctx)
	if err != nil {
		return made, err
	}
	held, err := transfer.Backup(ctx, st.Conn, store.Assets(), skip, st.Key, h, w, func() error {
		// the key that seals the backup must open the master keys in it
		if _, err := storestate.OpenRing(ctx, st.Conn, st.Key); err != nil || running {
			return err
		}
		began, err := b.served(ctx, st)
		if err == nil && began {
			err = ErrBegan
		}
		return err
	})
	return madeBackup{h, held}, err
}

// ErrBegan is returned if a process has started although the backup records that none ran.
var ErrBegan = errors.New(
	"a service started while the backup was being made; make it again while the service runs or, " +
		"for restore --go-on, while it is stopped")

// served reports whether a service runs on the store. A process without a connection to the external servers
// does not answer.
func (b Backup) served(ctx context.Context, st *store.Store) (bool, error) {
	if b.NATSURL == "" {
		// if this process does not hold the data directory, a service does, however slowly it answers
		return st.Embedded == nil, nil
	}
	return fleet.AnyRunning(ctx, st.Conn)
}

// printContents prints what a backup holds on standard error, for people. Programs get it as the result,
// unless that is the backup itself.
func printContents(l table.Listing, c command.Console, held []transfer.Held, outTaken bool) error {
	t := table.New("assets", "ASSET", "MESSAGES")
	for _, h := range held {
		t.Add(h.Asset, h.Count)
	}
	if l.JSON && !outTaken {
		return l.Print(c.Out, t)
	}
	return l.Print(c.Err, t)
}
