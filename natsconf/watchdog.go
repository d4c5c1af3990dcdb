package natsconf

import (
	"context"
	"errors"
	"time"
)

// watchEvery is how often the watchdog looks.
const watchEvery = time.Second

var errSilent = errors.New("the store no longer answers writes, as after a full or failing disk; starting it anew")

// Watchdog is the actor that starts the embedded server anew when it has gone silent. The server keeps the first write error of a
// stream for as long as it runs, and answers nothing from then on: without a new start, space that comes back would help nobody.
type Watchdog struct {
	embedded *Embedded
	writers  []*Writer
}

// NewWatchdog watches the writers to an embedded server.
func NewWatchdog(e *Embedded, writers ...*Writer) *Watchdog {
	return &Watchdog{embedded: e, writers: writers}
}

// String names the actor in the supervisor's log.
func (w *Watchdog) String() string { return "store watchdog" }

// Serve looks once a second until ctx ends.
func (w *Watchdog) Serve(ctx context.Context) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			w.lookOnce()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (w *Watchdog) lookOnce() {
	silent := false
	for _, writer := range w.writers {
		if writer.Silent() {
			silent = true
			writer.silence.Store(0)
		}
	}
	if silent {
		w.embedded.Fail(errSilent)
	}
}
