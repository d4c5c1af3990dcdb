package main

import (
	"sync/atomic"
	"testing"

	"verifyd/natsconf/natstest"
)

// Tests run beside each other in three kinds, however few processors there are: many that wait for disks,
// elections and time-outs, and hardly compute; few that load the machine, which would starve each other past
// the times that users and servers wait; and long ones, in containers or of processes that are stopped, which
// wait for minutes, but are starved by a crowd of the others.
//
// Long ones begin before the others, in two lanes. As long as there is one for it, a lane keeps a place of
// those that load the machine, and lightsOfALane places of those that hardly compute.
var lights, loads, lanes chan struct{}

// lightsOfALane leaves two places beside two lanes. Beside eight, and two that load the machine, dispatchers
// in containers did not become ready in time.
const lightsOfALane = 3

// longs are the long tests that have not ended.
var longs atomic.Int32

// inParallel is called in TestMain.
func inParallel() {
	natstest.Parallel(1000) // the places below decide
	lights, loads, lanes = make(chan struct{}, 8), make(chan struct{}, 2), make(chan struct{}, 2)
	if natstest.OnCluster() {
		lights, loads, lanes = make(chan struct{}, 4), make(chan struct{}, 1), make(chan struct{}, 1)
	}
}

// parallel lets a test that hardly computes run beside others. A test whose subtests call it is marked by
// t.Parallel alone: it would keep a place from them.
func parallel(t *testing.T) {
	t.Helper()
	take(t, lights)
}

// parallelHeavy lets a test that loads the machine run beside others.
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

// parallelLong lets a long test run beside others.
func parallelLong(t *testing.T) {
	t.Helper()
	first := longs.Add(1) <= int32(cap(lanes)) // where it is called tests do not run beside each other yet
	if first {
		lanes <- struct{}{}
		loads <- struct{}{}
		for range lightsOfALane {
			lights <- struct{}{}
		}
	}
	t.Parallel()
	if !first {
		lanes <- struct{}{}
	}
	natstest.Clock(t)
	t.Cleanup(func() {
		<-lanes
		if longs.Add(-1) >= int32(cap(lanes)) {
			return // the next one has the lane
		}
		<-loads
		for range lightsOfALane {
			<-lights
		}
	})
}
