// Package command has what the commands of verifyd share; the commands themselves are in the packages below
// it, by what they are about:
//
//	accounts    key, account, member, operator
//	delivery    deliveries, hosts, explain
//	export      sessions
//	integrator  try, listen, demo, demo-beside
//	process     serve, status, check, log-level, healthcheck
//	storage     move, backup, restore, recover, erase, secret, prepare, apply
//
// A command is a struct: its flags are the fields, and Run is what it does. Package main joins them to the
// command line. They depend on its library only by the tags of their fields. Results go to standard output,
// and everything else to standard error. An error that people can fix by typing something else is a
// config.UsageError.
package command

import (
	"context"
	"io"

	"github.com/rs/zerolog"

	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/store"
	"verifyd/edge/account/accountstore"
)

// Console is where a command writes: results to Out, everything else to Err. Texts to Err are reworded for
// who called it, as flags.Given does; those among the results are passed through Say.
type Console struct {
	Out, Err io.Writer
	Reword   func(string) string // nil: texts stay as they are
}

// Say returns a text for people, reworded.
func (c Console) Say(text string) string {
	if c.Reword == nil {
		return text
	}
	return c.Reword(text)
}

// Store is what the commands on a store share.
type Store struct {
	config.StoreSettings `embed:"" group:"store"`
}

// UseAccounts runs do with the accounts of a running service or a stopped one. If there is no store, none is
// made: a folder or servers that were named by mistake are not changed.
func (s Store) UseAccounts(ctx context.Context, c Console, do func(*accountstore.Store) error) error {
	return s.Use(ctx, c, func(st *store.Store) error { return do(st.Accounts) })
}

// Use is UseAccounts for commands that need more than accounts.
func (s Store) Use(ctx context.Context, c Console, do func(*store.Store) error) error {
	return s.reach(ctx, c, store.ToUse, do)
}

func (s Store) reach(ctx context.Context, c Console, why store.Purpose,
	do func(*store.Store) error) error {
	var f config.Faults
	cfg := s.Config(&f)
	if err := f.Err(); err != nil {
		return config.Usage(err)
	}
	st, err := store.Reach(ctx, cfg, zerolog.New(c.Err).Level(zerolog.ErrorLevel), why)
	if err != nil {
		return err
	}
	defer st.Close()
	return do(st)
}
