package main

import (
	"sync/atomic"
	"testing"

	"verifyd/natsconf/natstest"
)

// Tests run in parallel in three kinds, however few processors there are: many that wait for disks, elections
// and timeouts, and hardly compute; few that load the machine, which would starve each other beyond the
// timeouts of users and servers; and long ones, in containers or of processes that are stopped, which wait
// for minutes, but are starved by many of the others.
var lights, loads chan struct{}

// Long tests begin before the others, in lanes: those of faults sequentially, and the stack in parallel with
// the first of them.
var faultLane, stackLane *lane

// lane runs long tests sequentially. Until its last one ends, it takes a slot of the tests that load the
// machine, and lightsOfALane slots of those that hardly compute.
type lane struct {
	coming atomic.Int32 // tests that have not ended
	turn   chan struct{}
}

// lightsOfALane leaves two slots next to two lanes. With eight, and two that load the machine, dispatchers in
// containers did not become ready in time.
const lightsOfALane = 3

// inParallel is called in TestMain.
func inParallel() {
	natstest.Parallel(1000) // the slots below decide
	lights, loads = make(chan struct{}, 8), make(chan struct{}, 2)
	faultLane, stackLane = &lane{turn: make(chan struct{}, 1)}, &lane{turn: make(chan struct{}, 1)}
	if natstest.FewAtOnce() {
		lights, loads, stackLane = make(chan struct{}, 4), make(chan struct{}, 1), faultLane
	}
}

// parallel lets a test that hardly computes run in parallel with others. A test whose subtests call it only
// calls t.Parallel: it would take a slot from them.
func parallel(t *testing.T) {
	t.Helper()
	take(t, lights)
}

// parallelIdle lets a test that waits nearly all of its time run in parallel with all others, without a slot.
func parallelIdle(t *testing.T) {
	t.Helper()
	t.Parallel()
	natstest.Clock(t)
}

// parallelHeavy lets a test that loads the machine run in parallel with others.
func parallelHeavy(t *testing.T) {
	t.Helper()
	take(t, loads)
}

func take(t *testing.T, places chan struct{}) {
	t.Helper()
	t.Parallel()
	places <- struct{}{}
	natstest.Clock(t)
	t.Cleanup(func() { <-places })
}

// parallelLong lets a long test run in parallel with others, in a lane.
func parallelLong(t *testing.T, in *lane) {
	t.Helper()
	first := in.coming.Add(1) == 1 // tests do not run in parallel yet when it is called
	if first {
		in.turn <- struct{}{}
		loads <- struct{}{}
		for range lightsOfALane {
			lights <- struct{}{}
		}
	}
	t.Parallel()
	if !first {
		in.turn <- struct{}{}
	}
	natstest.Clock(t)
	t.Cleanup(func() {
		<-in.turn
		if in.coming.Add(-1) > 0 {
			return // the next one has the slots
		}
		<-loads
		for range lightsOfALane {
			<-lights
		}
	})
}
