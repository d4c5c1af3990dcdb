package storage

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/store"
	"verifyd/edge/account/audit"
	"verifyd/natsconf/crashpoint"
	"verifyd/natsconf/fleet"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/storestate"
)

// Secret has the commands on the master key.
type Secret struct {
	Rekey Rekey `cmd:"" help:"Change the master key, while the service runs: once, then with --finish when all processes have the new one."`
}

// Rekey changes the master key. Without --finish it makes a new key, which opens the store next to the old
// one, so that processes can be restarted one after another. With --finish only the new one does, and seals.
type Rekey struct {
	command.Local `embed:""`

	NewKeyFile string `placeholder:"FILE" help:"Where to write the new key, with mode 0600; a repeat reads it there. Default for a key in the data directory: in its place."`
	Finish     bool   `help:"Once every process runs with the new key: seal under it, and let the old key open the store no more."`
}

// Run does one of the two steps. A repeat completes what was interrupted.
func (r Rekey) Run(ctx context.Context, c command.Console) error {
	return r.Use(ctx, c, command.WhyRecords, func(st *store.Store) (err error) {
		var text string
		switch {
		case r.Finish && !st.Ring.Newest():
			return config.Usage(errors.New("--finish: this is the old master key; give the new one, in " +
				"VERIFYD_SECRET_KEY or VERIFYD_SECRET_KEY_FILE"))
		case r.Finish && !st.Ring.Changed():
			return config.Usage(errors.New("--finish: no change of the master key was begun; verifyd " +
				"secret rekey begins one"))
		case r.Finish:
			text, err = r.finish(ctx, st)
		case st.Ring.Waits():
			text = "This is the new master key already. " + afterBegin
		default:
			text, err = r.begin(ctx, st)
		}
		if err == nil {
			_, err = fmt.Fprintln(c.Err, text)
		}
		return err
	})
}

// afterBegin is what follows the first step.
const afterBegin = "Restart every process with the new key, one after another; sessions in progress go on. " +
	"Then run verifyd secret rekey --finish, with the new key. Until then both keys open the store."

// begin makes a new key, or reads the one that an interrupted run has made, and lets it open the store.
func (r Rekey) begin(ctx context.Context, st *store.Store) (text string, err error) {
	path, inPlace := r.NewKeyFile, ""
	if path == "" {
		if r.NATSURL != "" || r.SecretKey != "" || r.SecretKeyFile != "" {
			return "", config.Usage(errors.New("--new-key-file: not set; name a file for the new key, for " +
				"example --new-key-file /root/verifyd.key"))
		}
		inPlace = filepath.Join(r.DataDir, config.SecretFile)
		path = inPlace + ".new"
	}
	next, err := secretbox.LoadOrCreate(path)
	if err != nil {
		return "", config.Usage(fmt.Errorf("--new-key-file: %w", err))
	}
	if next == st.Key {
		return "", config.Usage(fmt.Errorf("--new-key-file: %s holds the present master key; name a new file",
			path))
	}
	if err := onlyRun(ctx, st, st.Key, next); err != nil {
		return "", err
	}
	crashpoint.Reach(crashpoint.RekeyWritten)
	err = storestate.ChangeRing(ctx, st.Conn, st.Key, func(keys *secretbox.Ring) ([]byte, error) {
		return keys.Admit(next, st.Conn.Clock.Now())
	})
	if err != nil {
		return "", err
	}
	if err := note(ctx, st, "master_key.admitted", next); err != nil {
		return "", err
	}
	crashpoint.Reach(crashpoint.RekeyAdmitted)
	if inPlace == "" {
		return "The new master key is in " + path + ". Keep a copy of it, and of the old one for as long " +
			"as there are backups that it sealed. " + afterBegin, nil
	}
	kept, err := secretbox.Replace(inPlace, st.Key, path)
	return "The new master key is in " + inPlace + ", the old one in " + kept + ": backups made before " +
		"need it. Keep copies of both elsewhere. " + afterBegin, err
}

// finish lets the new key alone open the store, and seals under it what accounts keep for as long as they
// live.
func (r Rekey) finish(ctx context.Context, st *store.Store) (text string, err error) {
	if err := onlyRun(ctx, st, st.Key); err != nil {
		return "", err
	}
	err = storestate.ChangeRing(ctx, st.Conn, st.Key, func(keys *secretbox.Ring) ([]byte, error) {
		stored, err := keys.Alone(st.Conn.Clock.Now())
		st.Ring.See(stored)
		return stored, err
	})
	if err != nil {
		return "", err
	}
	crashpoint.Reach(crashpoint.RekeyAlone)
	if err := awaitSealing(ctx, st, st.Ring.Seals()); err != nil {
		return "", err
	}
	if err := st.Accounts.Reseal(ctx); err != nil {
		return "", fmt.Errorf("%w; only the new key opens the store: run the same command again", err)
	}
	if err := note(ctx, st, "master_key.changed", st.Key); err != nil {
		return "", err
	}
	return "Only the new master key opens the store now. What sessions hold stays sealed under the old one " +
		"until their results are no longer kept.", nil
}

// note records a step in the log of operations: On is the fingerprint of the new key.
func note(ctx context.Context, st *store.Store, what string, key secretbox.Key) error {
	return st.Accounts.Note(ctx, command.Operator(), audit.ServiceLog, what, key.Fingerprint(), nil)
}

// judge returns the first error that it has of a process that runs.
func judge(ctx context.Context, st *store.Store, of func(fleet.Process) error) error {
	if st.Embedded != nil {
		return nil // this process has the store: no other runs
	}
	all, err := fleet.Everyone(ctx, st.Conn)
	for _, p := range all {
		if perr := of(p); perr != nil && err == nil {
			err = fmt.Errorf("%s, process %d, %w", p.Host, p.PID, perr)
		}
	}
	return err
}

// onlyRun refuses while a process runs with another key than these, or of a build that does not tell.
func onlyRun(ctx context.Context, st *store.Store, keys ...secretbox.Key) error {
	return judge(ctx, st, func(p fleet.Process) error {
		switch {
		case p.Key == "":
			return fmt.Errorf("is verifyd %s, which knows no second master key: upgrade or stop it first",
				p.Version)
		case !slices.ContainsFunc(keys, func(k secretbox.Key) bool { return k.Fingerprint() == p.Key }):
			return fmt.Errorf("runs with another master key (%s): restart it with the new one, or stop it, "+
				"first", p.Key)
		}
		return nil
	})
}

// sealTries bounds how often processes are asked whether they seal under the new key, for 3 s each. One that
// is connected learns it within the time of a message.
const sealTries = 10

// awaitSealing waits until all processes seal under a key of the store, so that none stores a secret under an
// earlier one after the secrets were sealed anew.
func awaitSealing(ctx context.Context, st *store.Store, key int) (err error) {
	for range sealTries {
		err = judge(ctx, st, func(p fleet.Process) error {
			if p.SealsUnder < key {
				return errors.New("has not seen yet that the new key seals: run the same command again")
			}
			return nil
		})
		if err == nil {
			return nil
		}
	}
	return err
}
