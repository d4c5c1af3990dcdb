package main

import (
	"testing"

	"verifyd/natsconf/natstest"
)

// Tests run beside each other in two kinds, however few processors there are: many that wait for disks,
// elections and time-outs, and hardly compute; and few that load the machine, which would starve each other
// past the times that users and servers wait. Those in containers, and of processes that are stopped, run
// alone, before these.
var lights, loads chan struct{}

// inParallel is called in TestMain.
func inParallel() {
	natstest.Parallel(1000) // the places below decide
	lights, loads = make(chan struct{}, 8), make(chan struct{}, 2)
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

func take(t *testing.T, places chan struct{}) {
	t.Helper()
	t.Parallel()
	places <- struct{}{}
	natstest.Clock(t)
	t.Cleanup(func() { <-places })
}
