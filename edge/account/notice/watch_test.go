package notice

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"verifyd/natsconf/natstest"
)

// A watch that is served asks its sources at once, and again and again.
func TestWatchAsksByItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began, asked := time.Now(), atomic.Int64{}
		natstest.Serve(t, &Watch{Queue: NewQueue(nil, zerolog.Nop()), Sources: []func() []Notice{
			func() []Notice { asked.Add(1); return nil },
		}})
		synctest.Wait()
		if n := asked.Load(); n != 1 {
			t.Errorf("asked %d times at its start", n)
		}
		natstest.AwaitValue(t, "it has asked three times", asked.Load, func(n int64) bool { return n == 3 })
		if took := time.Since(began); took < 2*lookEvery {
			t.Errorf("three times within %s", took)
		}
	})
}
