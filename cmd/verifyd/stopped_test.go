package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"verifyd/cmd/verifyd/demo"
	"verifyd/natsconf/crashpoint"
	"verifyd/natsconf/natstest"
)

const (
	// stopVariable makes a child stop itself at a point, the first time that it is reached.
	stopVariable = "VERIFYD_TEST_STOP"
	// stoppedLine is what it logs before that.
	stoppedLine = "stopped at the point"
	// stopTime is longer than a result is tried to be stored (20 s), as the process measures it.
	stopTime = 23 * time.Second
)

// stopAt makes this process stop itself, as its machine would that is paused.
func stopAt(point string) {
	if point == "" {
		return
	}
	var reached atomic.Bool
	crashpoint.Hook(func(p string) {
		if p == point && !reached.Swap(true) {
			fmt.Fprintln(os.Stderr, stoppedLine)
			stopSelf()
		}
	})
}

// A dispatcher's machine is paused while a result is being stored, for longer than that is tried, and its
// NATS server starts again meanwhile. The receiver has answered, which nobody else knows: the result is
// stored when the machine goes on.
func TestResultOutlastsAPause(t *testing.T) {
	t.Parallel()
	f := newDeployment(t)
	d := f.dispatchers[0]
	f.dispatchers[1].kill() // it would settle the attempt
	d.kill()
	d.env = append(d.env, stopVariable+"="+crashpoint.BeforeResult, "VERIFYD_CALLBACK_TIMEOUT=1m")
	if err := errors.Join(d.run(), d.comesUp(t.Context())); err != nil {
		t.Fatal(err)
	}
	s, ok := f.api().tryInit(t, f.counter.url)
	if !ok {
		t.Fatal("no session was started")
	}
	(&user{session: s, browser: demo.NewBrowser()}).walkOn(t, f.api())
	natstest.Await(t, "the process stops", func() bool {
		return strings.Contains(d.log.String(), stoppedLine)
	})
	if err := errors.Join(f.store.killed(t.Context()), f.store.comesUp(t.Context())); err != nil {
		t.Fatal(err)
	}
	<-time.After(stopTime) // of a process that does not run
	if err := d.continued(); err != nil {
		t.Fatal(err)
	}
	v := f.api().settled(t, s.Session)
	if n := len(f.counter.of(v.ID)); v.Delivery.State != "delivered" || n != 1 {
		t.Errorf("after the pause the delivery is %s, with %d POSTs", v.Delivery.State, n)
	}
}
