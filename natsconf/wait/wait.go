// Package wait makes requests wait for a store that is away for a moment. When a NATS server vanishes, no
// server answers for the streams that it led until the others have elected another leader, which takes up to
// 9.4 s. To a request that is a pause, not an error: under the context of For, a call that was not answered
// or accepted is tried again until the context ends. A read is repeated freely. A write is repeated only if
// nothing is stored, or if its writer recognizes its own message, by a nonce or a message id. A caller that
// does not wait learns soon that no server answers. The pauses and the periods of actors are here, too.
package wait

import (
	"context"
	"iter"
	"time"
)

// minPause and maxPause bound the pause between two tries. A thousand requests that wait are 5,000 tries a
// second at most, each of which a server that leads nothing answers with one line.
const minPause, maxPause = 20 * time.Millisecond, 200 * time.Millisecond

// mark is the value in a context of For. It is there also if the work goes on without its request.
type mark struct{}

// For returns a context under which a request's calls to the store wait until the context ends: after d, at
// the latest.
func For(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithValue(ctx, mark{}, true), d)
}

// Is reports whether calls under a context wait until it ends.
func Is(ctx context.Context) bool {
	_, ends := ctx.Deadline()
	return ends && ctx.Value(mark{}) != nil
}

// Outlasting returns a context for work that other callers wait for, too, and that so does not end with the
// caller that began it. It ends after d, or when the time of a caller that waits is over, whichever is later.
func Outlasting(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if end, _ := ctx.Deadline(); Is(ctx) {
		d = max(d, time.Until(end))
	}
	return context.WithTimeout(context.WithoutCancel(ctx), d)
}

// Tries counts tries, with pauses between them: the given number, or if the context waits, as many as there
// is time for. The first is always made.
func Tries(ctx context.Context, atMost int) iter.Seq[int] {
	return func(try func(int) bool) {
		pause := minPause
		for n := 1; try(n) && (n < atMost || Is(ctx)); n++ {
			if Pause(ctx, pause) != nil {
				return
			}
			pause = min(2*pause, maxPause)
		}
	}
}

// Pause waits for d. If ctx ends first it returns ctx's error.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Every calls do at once, and then each time d has passed, until ctx ends. It returns ctx's error.
func Every(ctx context.Context, d time.Duration, do func(context.Context)) error {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		do(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
