package storestate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"verifyd/natsconf"
)

// probeEvery is how often the health monitor checks the server.
const probeEvery = time.Second

var errSilent = errors.New(
	"the store no longer answers writes, as after a full or failing disk; restarting it")

// HealthMonitor is the actor that restarts the embedded server when it has gone silent. The server keeps the
// first write error of a stream for as long as it runs, and answers nothing from then on: without a restart,
// space that becomes free again would not help.
type HealthMonitor struct {
	fail    func(cause error)
	writers []*natsconf.Writer
}

// NewHealthMonitor returns a monitor that watches the writers to an embedded server.
func NewHealthMonitor(fail func(cause error), writers ...*natsconf.Writer) *HealthMonitor {
	return &HealthMonitor{fail: fail, writers: writers}
}

// String names the actor in the supervisor's log.
func (w *HealthMonitor) String() string { return "store watchdog" }

// Serve checks once a second until ctx ends.
func (w *HealthMonitor) Serve(ctx context.Context) error {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			w.probeOnce()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (w *HealthMonitor) probeOnce() {
	silent := false
	for _, writer := range w.writers {
		silent = writer.EndSilence() || silent
	}
	if silent {
		w.fail(errSilent)
	}
}

// errNoAnswer is returned by CheckWriters for streams that no longer answer.
var errNoAnswer = errors.New("the store does not answer writes")

// CheckWriters returns which of the writers' streams have not answered for at least the given time, or nil.
func CheckWriters(atLeast time.Duration, writers ...*natsconf.Writer) error {
	for _, w := range writers {
		if w.Silent() && w.SilentFor() >= atLeast {
			return fmt.Errorf("%w to %s", errNoAnswer, w.Stream())
		}
	}
	return nil
}
