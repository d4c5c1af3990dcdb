package natstest

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"
)

// slowest is how many tests a run over its budget names.
const slowest = 10

// slowVariable names a file to which the report of a run over its budget is written too: go test shows what a
// package without a failure prints only under -v.
const slowVariable = "VERIFYD_TEST_SLOW"

// times are how long tests took that called Clock.
var times struct {
	sync.Mutex

	took map[string]time.Duration
}

// Clock notes how long a test takes from here on, for the report of a run over its budget. One that waits
// for a place among parallel tests calls it when it has one. The first call of a test counts.
func Clock(tb testing.TB) {
	tb.Helper()
	times.Lock()
	defer times.Unlock()
	if _, runs := times.took[tb.Name()]; runs {
		return
	}
	if times.took == nil {
		times.took = map[string]time.Duration{}
	}
	times.took[tb.Name()] = 0
	began := time.Now()
	tb.Cleanup(func() {
		times.Lock()
		defer times.Unlock()
		times.took[tb.Name()] = time.Since(began)
	})
}

// budgeted is a package's tests with a time that they should not need more than.
type budgeted struct {
	*testing.M

	budget time.Duration
}

// Budget has a run of a package's tests that takes longer than its budget say which of them took longest,
// and nothing else: how long a run takes depends on the machine. go test shows it under -v, and where a test
// failed; .ci/run shows it always. Under -short the tests' folders are in memory, where there is room.
func Budget(m *testing.M, budget time.Duration) interface{ Run() int } { return budgeted{m, budget} }

// Run runs the tests.
func (b budgeted) Run() int {
	flag.Parse()
	defer inMemory()()
	began := time.Now()
	code := b.M.Run()
	if took := time.Since(began); took > b.budget {
		which, _ := os.Getwd() // go test runs a package's tests in its folder
		report(fmt.Sprintf("the tests in %s took %s, which should take %s at most; the longest:\n%s",
			which, took.Round(time.Second), b.budget, longest()))
	}
	return code
}

func report(text string) {
	fmt.Fprint(os.Stderr, text)
	//nolint:gosec // who runs the tests says where
	f, err := os.OpenFile(os.Getenv(slowVariable), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return // nobody asked for it
	}
	defer func() { _ = f.Close() }()
	_, _ = f.WriteString(text) // in one write: packages run in parallel
}

func longest() (text string) {
	times.Lock()
	defer times.Unlock()
	var names []string
	for name := range times.took {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(times.took[b], times.took[a]) })
	for _, name := range names[:min(slowest, len(names))] {
		text += fmt.Sprintf("%8.1f s  %s\n", times.took[name].Seconds(), name)
	}
	return text
}
