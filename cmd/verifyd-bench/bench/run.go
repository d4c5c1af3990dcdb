package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"verifyd/cmd/verifyd-bench/bench/child"
	"verifyd/cmd/verifyd-bench/bench/load"
	"verifyd/cmd/verifyd-bench/bench/proc"
	"verifyd/cmd/verifyd-bench/bench/report"
	"verifyd/natsconf/secretbox"
)

// bench is a running bench.
type bench struct {
	o        Options
	sync     string // of the rows being measured
	dir      string // of everything
	progress *report.Progress
	outside  *outside
	key      secretbox.Key
	sites    int // made so far
	samples  report.Samples
}

// Run measures, and prints the results. It stops soon after ctx ends, and prints the results so far. Its
// error names each row that failed or had errors; everything else was measured and printed.
func Run(ctx context.Context, o Options) (err error) {
	if err := o.Validate(); err != nil {
		return err
	}
	if err := (external{o}).checkEmpty(ctx); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(o.Dir, "verifyd-bench-")
	if err != nil {
		return fmt.Errorf("make a temporary folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := &bench{o: o, dir: dir, progress: report.NewProgress(o.Err, o.Terminal), key: secretbox.NewKey()}
	if b.outside, err = newOutside(); err != nil {
		return err
	}
	defer load.Serve(b.outside.network)()
	m := report.ThisMachine(dir)
	m.Version, m.Duration, m.Runs, m.Scale = o.Version, o.Duration.Seconds(), o.Runs, o.Scale
	others := proc.WatchOthers()
	failed := b.runAll(ctx)
	b.progress.End()
	m.Others = others.Cores()
	if err := b.print(m, failed); err != nil {
		return err
	}
	return verdict(ctx, &b.samples, failed)
}

// print prints the document or the table.
func (b *bench) print(m report.Machine, failed []report.Failure) error {
	d := report.Document{Machine: m, Results: b.samples.Results(b.o.shown()), Failures: failed}
	if b.o.JSON {
		return d.PrintJSON(b.o.Out)
	}
	return d.PrintTable(b.o.Out, scalingRemarks(d.Results)...)
}

// runAll runs the suites that have a wanted row. A failed suite does not keep the others from running.
func (b *bench) runAll(ctx context.Context) (failed []report.Failure) {
	for _, b.sync = range b.o.syncs() {
		for _, s := range suites {
			if !b.o.wantsAny(s) || ctx.Err() != nil {
				continue
			}
			err := s.run(b, ctx)
			err = errors.Join(err, external{b.o}.wipe(context.WithoutCancel(ctx)))
			if err != nil && ctx.Err() == nil {
				failed = append(failed, report.Failure{Rows: s.rows, Sync: b.sync, Error: err.Error()})
			}
		}
	}
	return failed
}

// verdict returns an error if anything went wrong.
func verdict(ctx context.Context, all *report.Samples, failed []report.Failure) error {
	if ctx.Err() != nil {
		return errors.New("stopped before the end; what was measured by then is above")
	}
	var lines []error
	for _, f := range failed {
		lines = append(lines, fmt.Errorf("%v (%s): %s", f.Rows, f.Sync, f.Error))
	}
	for _, r := range all.Results(rowNames(true)) {
		if r.Errors > 0 || r.Duplicates > 0 {
			lines = append(lines, fmt.Errorf("%s (%s): %d errors, %d duplicates: %s", r.Label(), r.Sync,
				r.Errors, r.Duplicates, r.FirstError))
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return fmt.Errorf("not everything went well: %w", errors.Join(lines...))
}

// add adds what was measured, unless it was cut short.
func (b *bench) add(ctx context.Context, s report.Sample) {
	if ctx.Err() == nil {
		b.samples.Add(b.sync, s)
	}
}

// newSite creates what a service on a fresh store needs around it. The authority of the outside parties is
// trusted.
func (b *bench) newSite() (site, error) {
	b.sites++
	h := site{
		dir: filepath.Join(b.dir, "store-"+strconv.Itoa(b.sites)), sync: b.sync, key: b.key,
		caFile: filepath.Join(b.dir, "ca.pem"),
		allow:  func(base string) { b.outside.network.AllowRedirect(base + "/signin/default/callback") },
	}
	if b.o.CopyTo != "" {
		h.copyTo = filepath.Join(b.o.CopyTo, filepath.Base(h.dir))
		if err := os.Mkdir(h.copyTo, 0o700); err != nil {
			return h, fmt.Errorf("--copy-to: %w", err)
		}
	}
	n := b.outside.network.Settings()
	h.env = []string{
		"VERIFYD_NETWORK_ISSUER=" + n.Issuer, "VERIFYD_NETWORK_NAME=Bench Network",
		"VERIFYD_NETWORK_CLIENT_ID=" + n.ClientID, "VERIFYD_NETWORK_CLIENT_SECRET=" + n.ClientSecret,
		"SSL_CERT_FILE=" + h.caFile, // the system's, as a service has for networks
	}
	if err := os.WriteFile(h.caFile, b.outside.ca.PEM(), 0o600); err != nil {
		return h, fmt.Errorf("write the authority of the outside parties: %w", err)
	}
	return h, nil
}

// freshService starts the service on a store of its own. Its end removes both.
func (b *bench) freshService(ctx context.Context, roles string) (*service, func(), error) {
	h, err := b.newSite()
	if err != nil {
		return nil, nil, err
	}
	s, err := b.o.startService(ctx, h, roles)
	if err != nil {
		return nil, nil, err
	}
	end := func() {
		s.discard()
		// It is repeated at the end of the suite, where a failure counts.
		_ = external{b.o}.wipe(context.WithoutCancel(ctx))
	}
	if err := s.enroll(ctx); err != nil {
		end()
		return nil, nil, err
	}
	return s, end, nil
}

// childStore is a store of its own for a child that writes.
func (b *bench) childStore() child.StoreConfig {
	b.sites++
	return child.StoreConfig{
		Dir: filepath.Join(b.dir, "store-"+strconv.Itoa(b.sites)), Sync: b.sync,
		NATSURL: b.o.NATSURL, NATSCreds: b.o.NATSCreds, Replicas: b.o.Replicas,
	}
}

// announce shows the next run of a row.
func (b *bench) announce(run int, format string, args ...any) {
	b.progress.Step(fmt.Sprintf("%s, sync %s, run %d of %d", fmt.Sprintf(format, args...), b.sync, run+1,
		b.o.Runs))
}
