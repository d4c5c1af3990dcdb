package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"verifyd/edge/devnetwork"
	"verifyd/natsconf/secretbox"
)

// suite is a set of rows that are measured together, in turns.
type suite struct {
	rows   []string
	byName bool // takes minutes, or is for who works on the bench: run only when named
	hidden bool
	run    func(b *bench, ctx context.Context) error
}

// suites in the order of the table.
var suites []suite

func init() { //nolint:gochecknoinits // the suites lead back to the options, which look rows up here
	suites = []suite{
		{rows: []string{rowGenerator}, byName: true, hidden: true, run: (*bench).generator},
		{rows: []string{rowBareHandler, rowInit}, run: (*bench).inits},
		{rows: []string{rowSignin}, run: (*bench).signinRow},
		{rows: []string{rowPublish, rowComplete}, run: (*bench).writes},
		{rows: []string{rowBareClient, rowDispatch}, run: (*bench).dispatches},
		{rows: []string{rowPaced}, run: (*bench).paced},
		{rows: []string{rowEndToEnd}, run: (*bench).endToEnd},
		{rows: []string{rowIdle}, run: (*bench).idle},
		{rows: []string{rowScaling}, byName: true, run: (*bench).scaling},
		{rows: []string{rowMillion}, byName: true, run: (*bench).million},
	}
}

// The rows.
const (
	rowGenerator   = "generator"
	rowBareHandler = "bare-handler"
	rowInit        = "init"
	rowSignin      = "signin"
	rowPublish     = "publish"
	rowComplete    = "complete"
	rowBareClient  = "bare-client"
	rowDispatch    = "dispatch"
	rowPaced       = "paced"
	rowEndToEnd    = "end-to-end"
	rowIdle        = "idle"
	rowScaling     = "scaling"
	rowMillion     = "million"
)

// Rows lists the rows in the order of the table.
func Rows() []string { return rowNames(false) }

func rowNames(hidden bool) (names []string) {
	for _, s := range suites {
		if hidden || !s.hidden {
			names = append(names, s.rows...)
		}
	}
	return names
}

// bench is a running bench.
type bench struct {
	o        Options
	sync     string // of the rows being measured
	dir      string // of everything
	progress *progress
	network  *devnetwork.Provider
	key      secretbox.Key
	sites    int // made so far
	samples  samples
}

// ErrRows is returned, wrapped with a line for each, when rows failed or did not go without errors.
// Everything else was measured and told.
var ErrRows = errors.New("not everything went well")

// Run measures and tells. It stops soon after ctx ends, and tells what it has by then.
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
	b := &bench{o: o, dir: dir, progress: newProgress(o), key: secretbox.NewKey()}
	if b.network, err = devnetwork.New(devnetwork.Config{}); err != nil {
		return err
	}
	if err := b.network.Listen(); err != nil {
		return err
	}
	network := runInBackground(b.network)
	defer network.stop()
	facts := machineFacts(o, dir)
	others := watchOthers()
	failed := b.runAll(ctx)
	b.progress.end()
	facts.Others = others.cores()
	if err := tell(o, facts, &b.samples, failed); err != nil {
		return err
	}
	return verdict(ctx, &b.samples, failed)
}

// failure is a row that could not be measured to its end.
type failure struct {
	Rows  []string `json:"rows"`
	Sync  string   `json:"sync"`
	Error string   `json:"error"`
}

// runAll runs the suites that have a wanted row. One that fails does not keep the others from running.
func (b *bench) runAll(ctx context.Context) (failed []failure) {
	for _, b.sync = range b.o.syncs() {
		for _, s := range suites {
			if !b.wantsAny(s.rows) || ctx.Err() != nil {
				continue
			}
			err := s.run(b, ctx)
			err = errors.Join(err, external{b.o}.wipe(context.WithoutCancel(ctx)))
			if err != nil && ctx.Err() == nil {
				failed = append(failed, failure{Rows: s.rows, Sync: b.sync, Error: err.Error()})
			}
		}
	}
	return failed
}

func (b *bench) wantsAny(rows []string) bool {
	return slices.ContainsFunc(rows, b.o.wants)
}

func verdict(ctx context.Context, all *samples, failed []failure) error {
	if ctx.Err() != nil {
		return errors.New("stopped before the end; what was measured by then is above")
	}
	var lines []error
	for _, f := range failed {
		lines = append(lines, fmt.Errorf("%v (%s): %s", f.Rows, f.Sync, f.Error))
	}
	for _, r := range all.results(nil) {
		if r.Errors > 0 || r.Duplicates > 0 {
			lines = append(lines, fmt.Errorf("%s (%s): %d errors, %d duplicates: %s", r.label(), r.Sync,
				r.Errors, r.Duplicates, r.FirstError))
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrRows, errors.Join(lines...))
}

// add enters what was measured, unless it was cut short.
func (b *bench) add(ctx context.Context, s sample) {
	if ctx.Err() == nil {
		b.samples.add(b.sync, s)
	}
}

// newSite makes the surroundings of a fresh store, with the receiver's authority trusted.
func (b *bench) newSite(r *receiver) (site, error) {
	b.sites++
	h := site{
		dir: filepath.Join(b.dir, "store-"+strconv.Itoa(b.sites)), sync: b.sync, key: b.key,
		caFile: filepath.Join(b.dir, "ca.pem"),
		allow:  func(base string) { b.network.AllowRedirect(base + "/signin/default/callback") },
	}
	if b.o.CopyTo != "" {
		h.copyTo = filepath.Join(b.o.CopyTo, filepath.Base(h.dir))
		if err := os.Mkdir(h.copyTo, 0o700); err != nil {
			return h, fmt.Errorf("--copy-to: %w", err)
		}
	}
	n := b.network.Settings()
	h.env = []string{
		"VERIFYD_NETWORK_ISSUER=" + n.Issuer, "VERIFYD_NETWORK_NAME=Bench Network",
		"VERIFYD_NETWORK_CLIENT_ID=" + n.ClientID, "VERIFYD_NETWORK_CLIENT_SECRET=" + n.ClientSecret,
	}
	if err := os.WriteFile(h.caFile, r.ca.PEM(), 0o600); err != nil {
		return h, fmt.Errorf("write the receiver's authority: %w", err)
	}
	return h, nil
}

// freshService starts the service on a store of its own. Its end throws both away.
func (b *bench) freshService(ctx context.Context, r *receiver, roles string) (*service, func(), error) {
	h, err := b.newSite(r)
	if err != nil {
		return nil, nil, err
	}
	s, err := b.o.startService(ctx, h, roles)
	if err != nil {
		return nil, nil, err
	}
	end := func() {
		s.throwAway()
		_ = external{b.o}.wipe(context.WithoutCancel(ctx)) // asked again, and told, at the end of the suite
	}
	if err := s.enroll(ctx); err != nil {
		end()
		return nil, nil, err
	}
	return s, end, nil
}

// childStore is a store of its own for a child that writes.
func (b *bench) childStore() storeConfig {
	b.sites++
	return storeConfig{
		Dir: filepath.Join(b.dir, "store-"+strconv.Itoa(b.sites)), Sync: b.sync,
		NATSURL: b.o.NATSURL, NATSCreds: b.o.NATSCreds, Replicas: b.o.Replicas,
	}
}

// run announces a run of a row.
func (b *bench) announce(run int, format string, args ...any) {
	b.progress.step(fmt.Sprintf("%s, sync %s, run %d of %d", fmt.Sprintf(format, args...), b.sync, run+1,
		b.o.Runs))
}
