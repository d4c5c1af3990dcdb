package bench

import (
	"context"
	"slices"

	"verifyd/cmd/verifyd-bench/bench/load"
)

// suite is a set of rows that are measured together, in turns.
type suite struct {
	rows   []string
	byName bool // takes minutes, or is for work on the bench: run only when named
	hidden bool
	run    func(b *bench, ctx context.Context) error
}

// suites in the order of the table.
var suites []suite

func init() { //nolint:gochecknoinits // the suites refer to the options, which look up rows here
	suites = []suite{
		{rows: []string{rowGenerator}, byName: true, hidden: true, run: (*bench).generator},
		{rows: []string{rowBareHandler, rowInit}, run: (*bench).inits},
		{rows: []string{rowPublish, rowComplete}, run: (*bench).writes},
		{rows: []string{rowBareClient, rowDispatch}, run: (*bench).dispatches},
		{rows: []string{rowPaced}, run: eachRun((*bench).paced)},
		{rows: []string{rowBareSession, rowSignin, rowEndToEnd}, run: eachRun((*bench).sessions)},
		{rows: []string{rowIdle}, run: eachRun((*bench).idle)},
		{rows: []string{rowAccounts}, byName: true, run: eachRun((*bench).accounts)},
		{rows: []string{rowScaling}, byName: true, run: (*bench).scaling},
		{rows: []string{rowMillion}, byName: true, run: (*bench).million},
	}
}

// eachRun returns a suite from what is measured in one run. All runs have the same receiver.
func eachRun(once func(b *bench, ctx context.Context, run int, r *load.Receiver) error) func(b *bench,
	ctx context.Context) error {
	return func(b *bench, ctx context.Context) error {
		r, err := b.outside.receiver(1)
		if err != nil {
			return err
		}
		defer r.Close()
		for run := range b.o.Runs {
			if err := once(b, ctx, run, r); err != nil {
				return err
			}
		}
		return ctx.Err()
	}
}

// Rows returns the names of the rows in the order of the table.
func Rows() []string { return rowNames(false) }

// rowNames returns the names in the order of the table, including the hidden ones if they are wanted.
func rowNames(hidden bool) (names []string) {
	for _, s := range suites {
		if hidden || !s.hidden {
			names = append(names, s.rows...)
		}
	}
	return names
}

// wants reports whether a row is named, or part of the default.
func (o Options) wants(row string) bool {
	if len(o.Rows) > 0 {
		return slices.Contains(o.Rows, row)
	}
	return slices.ContainsFunc(suites, func(s suite) bool {
		return !s.byName && slices.Contains(s.rows, row)
	})
}

// wantsAny reports whether a suite has a wanted row.
func (o Options) wantsAny(s suite) bool { return slices.ContainsFunc(s.rows, o.wants) }

// shown returns the rows of the table: the wanted ones, and the ceilings that ran alongside them.
func (o Options) shown() (rows []string) {
	for _, s := range suites {
		if o.wantsAny(s) {
			rows = append(rows, s.rows...)
		}
	}
	return rows
}
