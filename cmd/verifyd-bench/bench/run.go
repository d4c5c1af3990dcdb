package bench

import (
	"context"
	"errors"
	"fmt"
	"os"

	"verifyd/cmd/verifyd-bench/bench/load"
	"verifyd/cmd/verifyd-bench/bench/proc"
	"verifyd/cmd/verifyd-bench/bench/report"
	"verifyd/natsconf/secretbox"
)

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
