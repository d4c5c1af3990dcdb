package storage

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/store"
	"verifyd/edge/account/access"
	"verifyd/edge/account/audit"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/storestate"
	"verifyd/natsconf/topology"
	sessionstore "verifyd/sessions/store"
)

// Recover repairs a damaged store, and reports what it has lost.
type Recover struct {
	command.Local `embed:""`
}

// Run repairs a damaged store, without a second POST and without a second outcome.
func (r Recover) Run(ctx context.Context, c command.Console) error {
	var f config.Faults
	cfg := r.Config(&f)
	if err := f.Err(); err != nil {
		return config.Usage(err)
	}
	if cfg.NATSURL != "" {
		return config.Usage(errors.New(
			"--nats-url: recover is for the embedded store; on a cluster, remove the damaged server's " +
				"files, and the other servers fill it again (docs/OPERATING.md)"))
	}
	if !embedded.HadStore(cfg.DataDir) {
		return config.Usage(fmt.Errorf(
			"--data-dir: there is no store in %q; name the data directory of the service", cfg.DataDir))
	}
	st, err := store.Open(ctx, cfg, zerolog.New(c.Err).Level(zerolog.ErrorLevel), store.ToRecover)
	if errors.Is(err, embedded.ErrLocked) {
		return config.Usage(fmt.Errorf("%w: stop the service first", err))
	}
	if errors.Is(err, store.ErrNotDamaged) {
		return nothingLost(c, cfg)
	}
	if err != nil {
		return err
	}
	defer st.Close()
	if err := storestate.RepairRing(ctx, st.Conn); err != nil {
		return err
	}
	return endRecovery(ctx, c, st)
}

// nothingLost reports that there is nothing to recover, and what the next start mends by itself.
func nothingLost(c command.Console, cfg config.Store) error {
	minor, err := embedded.Inspect(cfg.DataDir, cfg.Sync)
	if err != nil {
		return err
	}
	for _, what := range minor {
		_, _ = fmt.Fprintln(c.Out, what)
	}
	_, err = fmt.Fprintln(c.Out, "The store is not damaged: there is nothing to recover.")
	return err
}

// closeLost ends what the store has lost the end of, and counts the deliveries that it ended as unknown and
// the sessions that it closed.
func closeLost(ctx context.Context, c command.Console, r *embedded.Recovery,
	damaged *sessionstore.Store) (deliveries, closed int, err error) {
	if from, to, lost := r.Lost(topology.StreamCompletions); lost {
		if deliveries, closed, err = damaged.CloseLost(ctx, from, to); err != nil {
			return 0, 0, err
		}
	}
	if _, _, lost := r.Lost(topology.StreamSessionKeys); !lost {
		return deliveries, closed, nil
	}
	k, err := damaged.CloseKeyless(ctx)
	if err != nil {
		return 0, 0, err
	}
	_, _ = fmt.Fprintf(c.Out,
		"Sessions whose keys are lost, so that their users and callback URLs are no longer known: %d. "+
			"Of these, callbacks that had not ended and cannot be sent: %d.\n", k.Sessions, k.Undelivered)
	return deliveries, closed + k.Closed, nil
}

// endRecovery ends the sessions and deliveries whose end the store has lost, and reports and records what was
// lost.
func endRecovery(ctx context.Context, c command.Console, s *store.Store) error {
	for _, d := range s.Recovery.Damages {
		_, _ = fmt.Fprintln(c.Out, d)
	}
	var deliveries, closed int
	if err := s.WithFacts(func(damaged *sessionstore.Store) (err error) {
		deliveries, closed, err = closeLost(ctx, c, s.Recovery, damaged)
		return err
	}); err != nil {
		return err
	}
	// none of the deliveries that were ended above
	inFlight, _, uncounted := s.Reader().OpenClaims(ctx, 1, nil)
	found, err := s.Accounts.Reconcile(ctx, access.Operator(""))
	if err != nil {
		return err
	}
	if err := noteRecovery(ctx, s, deliveries, closed); err != nil {
		return err
	}
	if err := s.Embedded.EndRecovery(); err != nil {
		return err
	}
	for what, names := range map[string][]string{
		"Lost API keys, to be created again": found.LostKeys,
		"Lost accounts":                      found.LostAccounts,
		"API keys that were revoked again":   found.Revoked,
	} {
		if len(names) > 0 {
			_, _ = fmt.Fprintf(c.Out, "%s: %s\n", what, strings.Join(names, ", "))
		}
	}
	switch {
	case uncounted != nil:
		_, _ = fmt.Fprintf(c.Out, "Callbacks that were being sent could not be counted: %s\n", uncounted)
	case len(inFlight) > 0:
		_, _ = fmt.Fprintf(c.Out, "Callbacks that were being sent when the service ended: %d. Whether they "+
			"arrived is not known, too. After the service's start, dispatchers end them as unknown, or send "+
			"them again where the account has at-least-once.\n", len(inFlight))
	}
	_, err = fmt.Fprintf(c.Out,
		"Recovered: %d deliveries are unknown, %d sessions were closed because their outcome or their "+
			"key may be lost.\n"+
			"The damaged files are in %s. Start the service again.\n", deliveries, closed,
		filepath.Join(s.DataDir, s.Recovery.Kept))
	return err
}

// noteRecovery records each damage in the log of operations.
func noteRecovery(ctx context.Context, s *store.Store, deliveries, closed int) error {
	for _, d := range s.Recovery.Damages {
		err := s.Accounts.Note(ctx, access.Operator(""), audit.ServiceLog, audit.StoreRecovered,
			d.Stream, map[string]string{
				"what": d.What, "file": d.File, "lost": strconv.FormatUint(d.Lost, 10),
				"from": instantText(d.From), "to": instantText(d.To),
				"kept": s.Recovery.Kept, "deliveries_unknown": strconv.Itoa(deliveries),
				"sessions_closed": strconv.Itoa(closed),
			})
		if err != nil {
			return fmt.Errorf("record the recovery: %w", err)
		}
	}
	return nil
}

func instantText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}
