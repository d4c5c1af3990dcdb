package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"verifyd/cmd/verifyd-bench/bench/load"
)

const (
	// keep is how long results are kept: longer than a session's life, and so short that after the first part
	// of the run as much is removed as is added.
	keep = 12 * time.Minute
	// retryFor is for how long a callback is tried.
	retryFor = 2 * time.Minute
	// retentionSpare is how much longer the service, which is built for this, keeps results.
	retentionSpare = "10m"
)

// Errors of a run that was not cut short.
var (
	// ErrBroken is returned if a promise did not hold.
	ErrBroken = errors.New("a promise was broken")
	// ErrGrown is returned if a process or the store has grown more than the kept data explains.
	ErrGrown = errors.New("something grows")
)

// Run runs the site and returns when all sessions are judged, or ctx ends.
func Run(ctx context.Context, o Options) (err error) {
	binary := filepath.Join(o.Dir, "verifyd")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, //nolint:gosec // our own source
		"-ldflags=-X verifyd/cmd/verifyd/config.retentionSpare="+retentionSpare, "verifyd/cmd/verifyd")
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build verifyd: %w\n%s\nrun this in verifyd's source", err, output)
	}
	defer func() { _ = os.Remove(binary) }()
	s, err := newSite(ctx, o, binary)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.start(ctx); err != nil {
		return err
	}
	s.say("the site is up; %s at %d sessions a second, seed %d", o.For, o.Rate, o.Seed)

	began := time.Now()
	loaded, stop := context.WithTimeout(ctx, o.For)
	defer stop()
	crowd := newCrowd(s, o)
	watched := newWatch(s, crowd, began)
	var wg sync.WaitGroup
	wg.Go(func() { crowd.run(ctx, loaded) }) // returns when the last session is judged
	measured := make(chan struct{})
	wg.Go(func() { defer close(measured); watched.run(loaded) })
	faults := s.torment(ctx, loaded, rand.New(rand.NewPCG(o.Seed, 1))) //nolint:gosec // a plan of faults
	if faults == nil {
		s.say("the load has ended; the last sessions come to their ends")
		faults = s.heal(ctx)
	}
	wg.Wait()
	<-measured
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("stopped before the end: %w", err)
	}
	_, _ = fmt.Fprintf(o.Out, "%s\n%s\n%s", s.done.String(), crowd.tally.String(), watched.table())
	plot := filepath.Join(o.Dir, "soak.svg")
	if err := os.WriteFile(plot, watched.plot(), 0o600); err != nil {
		return err
	}
	_, _ = fmt.Fprintln(o.Out, "plots:", plot)
	return errors.Join(faults, crowd.tally.err(), watched.err())
}

// say prints a line about what happens, with the time.
func (s *site) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now().UTC().Format(time.TimeOnly)
	_, _ = fmt.Fprintf(s.out, "%s  %s\n", now, fmt.Sprintf(format, args...))
}

// webhookID returns the webhook-id of a session's callback.
func webhookID(token string) string { return load.WebhookID(token) }
