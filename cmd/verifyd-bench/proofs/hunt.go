package proofs

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"sync/atomic"
	"time"
)

// failedTest matches the line of a test that failed, and of a package that did.
var failedTest = regexp.MustCompile(`(?m)^(--- FAIL: \S+|FAIL\t\S+)`)

// Hunt runs the quick tests of the repository at root n times while one processor is kept busy, prints a line
// for each run, and returns an error if one failed. A test that fails only so is upset by the machine.
func Hunt(ctx context.Context, root string, n int, out io.Writer) error {
	defer busy()()
	passed := 0
	for i := 1; i <= n && ctx.Err() == nil; i++ {
		began := time.Now()
		tests := exec.CommandContext(ctx, "go", "test", "-count=1", "./...")
		var output bytes.Buffer
		stopGently(tests)
		tests.Dir, tests.Stdout, tests.Stderr = root, &output, &output
		err := tests.Run()
		took := time.Since(began).Round(time.Second)
		if err == nil {
			passed++
			_, _ = fmt.Fprintf(out, "%d\tpassed\t%s\n", i, took)
			continue
		}
		_, _ = fmt.Fprintf(out, "%d\tFAILED\t%s\t%s\n%s", i, took,
			strings.Join(failedTest.FindAllString(output.String(), -1), ", "), failures(output.String()))
	}
	if passed < n {
		return fmt.Errorf("%d of %d runs passed", passed, n)
	}
	return nil
}

// stopGently has a command, and the tests that it has started, interrupted when its context ends.
func stopGently(cmd *exec.Cmd) {
	inGroup(cmd)
	cmd.Cancel = func() error { return interrupt(cmd) }
	cmd.WaitDelay = 10 * time.Second
}

// failures returns what was printed, without the packages that passed.
func failures(output string) string {
	var b strings.Builder
	for line := range strings.Lines(output) {
		if !strings.HasPrefix(line, "ok  \t") && !strings.HasPrefix(line, "?   \t") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// busy keeps one processor busy until stop is called.
func busy() (stop func()) {
	var ended atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !ended.Load() {
			continue
		}
	}()
	return func() { ended.Store(true); <-done }
}
