package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"text/tabwriter"
	"time"

	"github.com/rs/zerolog"

	"verifyd/edge/account"
	"verifyd/edge/limit"
	"verifyd/sessions"
)

type serveCmd struct {
	settings `embed:""`
}

// Run runs the service until SIGTERM or SIGINT.
func (s serveCmd) Run(ctx context.Context, c console) error {
	log, err := s.logger(c.err)
	if err != nil {
		return usageError{err}
	}
	cfg, err := s.config(log)
	if err != nil {
		return usageError{err}
	}
	modestHeap()
	return newProgram(cfg).Serve(ctx)
}

// modestHeap lets garbage be collected when the heap has grown by 65 % since the last time, instead of Go's 100 %: peak memory under a
// burst falls by a tenth, for a few hundredths of the processor (docs/DECISIONS.md). The operator's GOGC holds where it is set.
func modestHeap() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(65)
	}
}

// storeCmd is what the commands on a store share.
type storeCmd struct {
	storeSettings `embed:""`
}

// existing is with for commands that only look: in a folder without a store there is nothing to see, and none is made.
func (s storeCmd) existing(ctx context.Context, c console, do func(*account.Store) error) error {
	return s.look(ctx, c, func(st *store) error { return do(st.accounts) })
}

// look is existing for commands that read more than accounts.
func (s storeCmd) look(ctx context.Context, c console, do func(*store) error) error {
	if _, err := os.Stat(s.DataDir); s.NATSURL == "" && err != nil {
		var f faults
		f.add("data-dir", fmt.Sprintf("there is no store in %q", s.DataDir), "name the data directory of the service")
		return usageError{f.err()}
	}
	return s.reach(ctx, c, do)
}

// with runs do with the accounts of a running service or a stopped one.
func (s storeCmd) with(ctx context.Context, c console, do func(*account.Store) error) error {
	return s.reach(ctx, c, func(st *store) error { return do(st.accounts) })
}

func (s storeCmd) reach(ctx context.Context, c console, do func(*store) error) error {
	var f faults
	cfg := s.config(&f)
	if err := f.err(); err != nil {
		return usageError{err}
	}
	st, err := reachStore(ctx, cfg, zerolog.New(c.err).Level(zerolog.ErrorLevel))
	if err != nil {
		return err
	}
	defer st.close()
	return do(st)
}

type keyCmd struct {
	Create keyCreateCmd `cmd:"" help:"Make an API key and print it, this once, alone on standard output."`
	List   keyListCmd   `cmd:"" help:"List API keys."`
	Revoke keyRevokeCmd `cmd:"" help:"End an API key for good."`
}

type keyCreateCmd struct {
	storeCmd  `embed:""`
	Account   string `required:"" placeholder:"NAME" help:"Account the key belongs to; made, with a signing secret, when it is new."`
	Test      bool   `help:"Make a test key (vfytest_…)."`
	RateLimit string `placeholder:"R" help:"Sessions this key may start, for example 5/s; default: the service's."`
	Policy    string `placeholder:"P" help:"Of its callbacks: once or at-least-once; default: the service's."`
	Quota     int64  `placeholder:"N" help:"Sessions the account may start in a UTC month; default: the service's."`
}

// Run makes the key.
func (k keyCreateCmd) Run(ctx context.Context, c console) error {
	var rate account.Rate
	if k.RateLimit != "" {
		var err error
		if rate, err = limit.ParseRate(k.RateLimit); err != nil {
			return usageError{fmt.Errorf("--rate-limit: %w", err)}
		}
	}
	var f faults
	var sends sessions.Policy
	if k.Policy != "" {
		sends = policy(&f, "policy", k.Policy)
	}
	if err := f.err(); err != nil {
		return usageError{err}
	}
	if k.Quota < 0 {
		return usageError{fmt.Errorf("--quota: %d is below zero; give a number of sessions, for example 5000", k.Quota)}
	}
	return k.with(ctx, c, func(s *account.Store) error {
		a, err := s.EnsureAccount(ctx, k.Account)
		if err != nil {
			return err
		}
		if k.Quota > 0 {
			if err := s.SetQuota(ctx, a.ID, k.Quota); err != nil {
				return err
			}
		}
		secret, key, err := s.CreateKey(ctx, a.ID, account.KeyOptions{Test: k.Test, RateLimit: rate, Policy: sends})
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(c.err, "API key %s of %s. It is shown this once; keep it like a password.\n", key.ID, a.Name)
		_, err = fmt.Fprintln(c.out, secret)
		return err
	})
}

type keyListCmd struct {
	storeCmd `embed:""`
}

// Run lists the keys, oldest first.
func (k keyListCmd) Run(ctx context.Context, c console) error {
	return k.existing(ctx, c, func(s *account.Store) error {
		accounts, err := s.Accounts(ctx)
		if err != nil {
			return err
		}
		names := map[string]string{}
		for _, a := range accounts {
			names[a.ID] = a.Name
		}
		keys, err := s.Keys(ctx)
		if err != nil {
			return err
		}
		w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintln(w, "ID\tACCOUNT\tKEY\tCREATED\tREVOKED")
		for _, k := range keys {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", k.ID, names[k.Account], shortKey(k), instant(k.CreatedAt), instant(k.RevokedAt))
		}
		return w.Flush()
	})
}

// shortKey shows a key as people tell it from others: its prefix and last four characters.
func shortKey(k account.Key) string {
	if k.Test {
		return account.TestPrefix + "…" + k.Last4
	}
	return account.LivePrefix + "…" + k.Last4
}

func instant(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Format(time.RFC3339)
}

type keyRevokeCmd struct {
	storeCmd `embed:""`
	ID       string `arg:"" help:"The key's id (verifyd key list shows it)."`
}

// Run ends the key.
func (k keyRevokeCmd) Run(ctx context.Context, c console) error {
	return k.existing(ctx, c, func(s *account.Store) error {
		key, err := s.RevokeKey(ctx, k.ID)
		if errors.Is(err, account.ErrNoKey) {
			return usageError{err}
		}
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(c.err, "API key %s is revoked since %s.\n", key.ID, instant(key.RevokedAt))
		return err
	})
}

type accountCmd struct {
	Secret accountSecretCmd `cmd:"" help:"Print an account's callback signing secret alone on standard output."`
}

type accountSecretCmd struct {
	storeCmd `embed:""`
	Name     string `arg:"" help:"The account's name."`
}

// Run prints the newest signing secret.
func (a accountSecretCmd) Run(ctx context.Context, c console) error {
	return a.existing(ctx, c, func(s *account.Store) error {
		acc, err := s.AccountByName(ctx, a.Name)
		if errors.Is(err, account.ErrNoAccount) {
			return usageError{err}
		}
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(c.out, acc.Secrets[0])
		return err
	})
}
