package site

import (
	"context"
	"time"
)

const (
	// maxAwait bounds how long a change waits for the directory of this process, which polls the store
	// (natsconf.Watch).
	maxAwait   = time.Second
	awaitPause = 2 * time.Millisecond
)

// Await waits, for a second at most, until the directory shows what was just done, so that the next page
// shows it. It waits even if the visitor has gone: bounds count what the directory shows.
func Await(ctx context.Context, shown func() bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxAwait)
	defer cancel()
	tick := time.NewTicker(awaitPause)
	defer tick.Stop()
	for !shown() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
