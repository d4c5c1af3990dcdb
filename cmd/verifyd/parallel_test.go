package main

import (
	"testing"

	"verifyd/natsconf/natstest"
)

// Tests run beside each other in three kinds, however few processors there are: many that wait for disks,
// elections and time-outs, and hardly compute; few that load the machine, which would starve each other past
// the times that users and servers wait; and two in containers, which mostly wait for them, and for long.
var lights, loads, stacked chan struct{}

// inParallel is called in TestMain.
func inParallel() {
	natstest.Parallel(1000) // the places below decide
	lights, loads, stacked = make(chan struct{}, 8), make(chan struct{}, 2), make(chan struct{}, 2)
	if natstest.OnCluster() {
		lights, loads = make(chan struct{}, 4), make(chan struct{}, 1)
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

// parallelStack lets a test that runs containers run beside others.
func parallelStack(t *testing.T) {
	t.Helper()
	take(t, stacked)
}

func take(t *testing.T, places chan struct{}) {
	t.Helper()
	t.Parallel()
	places <- struct{}{}
	natstest.Clock(t)
	t.Cleanup(func() { <-places })
}
