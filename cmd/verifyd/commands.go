package main

import (
	"context"
	"os"
	"runtime/debug"

	"github.com/rs/zerolog"

	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/flags"
	"verifyd/cmd/verifyd/service"
	"verifyd/cmd/verifyd/store"
	"verifyd/edge/account/accountstore"
)

type serveCmd struct {
	config.Settings `embed:""`
}

// Run runs the service until SIGTERM or SIGINT.
func (s serveCmd) Run(ctx context.Context, c console, said flags.Notes) error {
	j, err := s.Logger(c.err)
	if err != nil {
		return config.Usage(err)
	}
	said.Log(j.Log())
	cfg, err := s.Config(j.Log())
	if err != nil {
		return config.Usage(err)
	}
	cfg.Logger = j
	modestHeap()
	return service.New(cfg).Serve(ctx)
}

// modestHeap lets garbage be collected when the heap has grown by 55 % since the last time, instead of Go's
// 100 %: peak memory under a burst falls by a seventh, at a price that docs/DECISIONS.md tells. The
// operator's GOGC holds where it is set.
func modestHeap() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(55)
	}
}

// storeCmd is what the commands on a store share.
type storeCmd struct {
	config.StoreSettings `embed:"" group:"store"`
}

// existing runs do with the accounts of a running service or a stopped one. Where there is no store, none
// is made: a folder or servers that were named by mistake stay as they are.
func (s storeCmd) existing(ctx context.Context, c console, do func(*accountstore.Store) error) error {
	return s.look(ctx, c, func(st *store.Store) error { return do(st.Accounts) })
}

// look is existing for commands that need more than accounts.
func (s storeCmd) look(ctx context.Context, c console, do func(*store.Store) error) error {
	return s.reach(ctx, c, store.ToUse, do)
}

// with is existing for a command that was told, by its flag --new-store, to make the store where there is
// none.
func (s storeCmd) with(ctx context.Context, c console, do func(*accountstore.Store) error) error {
	return s.reach(ctx, c, store.ToBegin, func(st *store.Store) error { return do(st.Accounts) })
}

func (s storeCmd) reach(ctx context.Context, c console, why store.Purpose,
	do func(*store.Store) error) error {
	var f config.Faults
	cfg := s.Config(&f)
	if err := f.Err(); err != nil {
		return config.Usage(err)
	}
	st, err := store.Reach(ctx, cfg, zerolog.New(c.err).Level(zerolog.ErrorLevel), why)
	if err != nil {
		return err
	}
	defer st.Close()
	return do(st)
}
