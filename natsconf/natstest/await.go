package natstest

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
)

const (
	// awaitLook is how long Await looks away: watching without a pause would take the processor from what is
	// awaited.
	awaitLook = 5 * time.Millisecond
	// awaitShare is the share of the time since Await began for which it looks away once that is longer: in
	// virtual time nothing but its looks costs anything.
	awaitShare = 100
)

// Await waits until something is so; what names it for the failure. It is called from the test's own
// goroutine.
func Await(tb testing.TB, what string, is func() bool) {
	tb.Helper()
	await(tb, func() string { return what }, is)
}

func await(tb testing.TB, what func() string, is func() bool) {
	tb.Helper()
	began := time.Now()
	for late := time.After(TestTimeout); !is(); {
		select {
		case <-time.After(max(awaitLook, time.Since(began)/awaitShare)):
		case <-late:
			tb.Fatalf("not within %s: %s", TestTimeout, what())
		}
	}
}

// Receive returns what comes next from a channel, or the zero value if it is closed, and fails the test if
// nothing comes: what would have sent it may have failed. It is called from the test's own goroutine.
func Receive[T any](tb testing.TB, what string, from <-chan T) T {
	tb.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(TestTimeout):
		tb.Fatalf("not within %s: %s", TestTimeout, what)
		panic("unreachable")
	}
}

// AwaitValue is Await for a value, of which a failure shows the last one. It returns the one that was wanted.
func AwaitValue[T any](tb testing.TB, what string, get func() T, wanted func(T) bool) (v T) {
	tb.Helper()
	await(tb, func() string { return fmt.Sprintf("%s; at last it is %+v", what, v) }, func() bool {
		v = get()
		return wanted(v)
	})
	return v
}

// AwaitConsumers waits until a stream has as many consumers: a cluster counts a deleted one for a moment
// more. Those that readings left to the server, which deletes them when they have not been used for 30 s, are
// used here meanwhile, so that they stay and fail the test. No reading may be under way.
func AwaitConsumers(tb testing.TB, c *natsconf.Conn, stream string, many int) {
	tb.Helper()
	AwaitValue(tb, fmt.Sprintf("%s has %d consumers", stream, many), func() int {
		s, err := c.JS.Stream(tb.Context(), stream)
		if err != nil {
			return -1 // unknown: the server is away, or the stream has no leader
		}
		found := s.CachedInfo().State.Consumers
		if found != many {
			useConsumers(tb, s)
		}
		return found
	}, func(n int) bool { return n == many })
}

// useConsumers asks each consumer that the server would delete for a message.
func useConsumers(tb testing.TB, s jetstream.Stream) {
	tb.Helper()
	for info := range s.ListConsumers(tb.Context()).Info() {
		if info.Config.InactiveThreshold == 0 {
			continue
		}
		// an error is that of a consumer that is gone, which is what is waited for
		if left, err := s.Consumer(tb.Context(), info.Name); err == nil {
			_, _ = left.Fetch(1, jetstream.FetchMaxWait(time.Second))
		}
	}
}
