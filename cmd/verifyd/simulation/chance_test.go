package simulation_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"testing"

	"verifyd/natsconf/natstest/prove"
)

// The Go runtime draws what a schedule's seed does not decide: which case of a select is taken if several
// are ready, which timer of one instant fires first, in which order a map is read. It draws from random
// streams, whose seed is sixteen bytes that the kernel gives a process. In a process that plays one schedule
// alone, those bytes are derived from the schedule's seed and a number called luck. Its threads run one at a
// time (startChosen), and no garbage is collected: it does the same each time, down to its allocations.
//
// Allocations matter: if one takes a longer path, the stack may have to grow, and for that the runtime draws
// from the same stream as for scheduling. So nothing here may depend on the id of the process or on the
// machine's clock. A library that starts a timer when it is initialized must not be linked.

// lucks is how many lucks are tried to reproduce alone a schedule that was broken among others.
const lucks = 50

// playAlone plays one schedule in a process of its own. If chance cannot be chosen here, free reports true
// for the error.
func playAlone(ctx context.Context, seed, luck uint64) (sum summary, err error) {
	program, err := os.Executable()
	if err != nil {
		return sum, err
	}
	c := exec.CommandContext(ctx, program, "-test.run", "^TestSimulation$", "-test.timeout", "4m",
		"-alone", "-first-seed", fmt.Sprint(seed), "-schedules", "1")
	c.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=off", "GODEBUG=memprofilerate=0")
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := startChosen(c, [2]uint64{seed + 1, luck + 1}); err != nil {
		return sum, fmt.Errorf("start a process whose chance is chosen: %w", err)
	}
	err = c.Wait() // until then the output may be incomplete
	sum, unread := readSummary(out.Bytes())
	if err := errors.Join(err, unread); err != nil {
		return sum, fmt.Errorf("the schedule of seed %d: %w\n%s", seed, err, out.Bytes())
	}
	return sum, nil
}

// free reports whether an error means that chance cannot be chosen here. Choosing it needs Linux, the
// permission to trace another process, and a build without the race detector.
func free(err error) bool {
	return errors.Is(err, errors.ErrUnsupported) || errors.Is(err, os.ErrPermission)
}

func readSummary(out []byte) (sum summary, err error) {
	_, report, ok := bytes.Cut(out, []byte("summary "))
	if !ok {
		return sum, errors.New("it reports nothing")
	}
	report, _, _ = bytes.Cut(report, []byte("\n"))
	return sum, json.Unmarshal(report, &sum)
}

// luckOf looks for a luck with which a schedule that was broken among others is broken alone.
func luckOf(ctx context.Context, seed uint64) (luck uint64, err error) {
	for luck := range uint64(lucks) {
		if sum, err := playAlone(ctx, seed, luck); err != nil || len(sum.Broken) > 0 {
			return luck, err
		}
	}
	return 0, fmt.Errorf("alone it holds, with each of %d lucks", lucks)
}

// TestSeedsRepeat plays schedules twice, each alone, and compares everything that happened in them, with its
// order and virtual time to the nanosecond.
func TestSeedsRepeat(t *testing.T) {
	prove.Only(t, "simulation", "it starts two processes for each schedule")
	if _, err := playAlone(t.Context(), max(*firstSeed, 1), 0); free(err) {
		t.Skip(err)
	}
	var mu sync.Mutex
	var differ []uint64
	var all sync.WaitGroup
	room := make(chan struct{}, runtime.NumCPU())
	for i := range *repeated {
		seed := max(*firstSeed, 1) + uint64(i)
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			one, err := playAlone(t.Context(), seed, 0)
			other, errOther := playAlone(t.Context(), seed, 0)
			if err := errors.Join(err, errOther); err != nil {
				t.Error(err)
			}
			if one.Hash != other.Hash {
				mu.Lock()
				defer mu.Unlock()
				differ = append(differ, seed)
			}
		})
	}
	all.Wait()
	if len(differ) > 0 {
		t.Errorf("of %d schedules these were not the same twice: %v", *repeated, differ)
	}
	t.Logf("figures: %d of %d schedules were the same twice", *repeated-len(differ), *repeated)
}
