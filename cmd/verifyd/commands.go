package main

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/rs/zerolog"

	"verifyd/edge/account"
)

type serveCmd struct {
	settings `embed:""`
}

// Run runs the service until SIGTERM or SIGINT.
func (s serveCmd) Run(ctx context.Context, c console) error {
	j, err := s.journal(c.err)
	if err != nil {
		return usageError{err}
	}
	cfg, err := s.config(j.Log())
	if err != nil {
		return usageError{err}
	}
	cfg.journal = j
	modestHeap()
	return newProgram(cfg).Serve(ctx)
}

// modestHeap lets garbage be collected when the heap has grown by 55 % since the last time, instead of Go's 100 %: peak memory under a
// burst falls by a seventh, at a price that docs/DECISIONS.md tells. The operator's GOGC holds where it is set.
func modestHeap() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(55)
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
