package wait_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"verifyd/natsconf/wait"
)

func tries(ctx context.Context, atMost int) (n int) {
	for range wait.Tries(ctx, atMost) {
		n++
	}
	return n
}

func TestTries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		if n := tries(t.Context(), 3); n != 3 {
			t.Errorf("%d tries, want 3", n)
		}
		began := time.Now()
		ctx, cancel := wait.For(t.Context(), 12*time.Second)
		defer cancel()
		// after pauses of 20, 40, 80 and 160 ms one every 200 ms
		if n, took := tries(ctx, 1), time.Since(began); n != 63 || took != 12*time.Second {
			t.Errorf("%d tries in %s, want those of 12 s", n, took)
		}
		if n := tries(ctx, 3); n != 1 {
			t.Errorf("%d tries after the end, want the first alone", n)
		}
		ctx, leave := wait.For(t.Context(), time.Hour)
		go func() { time.Sleep(time.Second); leave() }() // of the bubble
		began = time.Now()
		if tries(ctx, 1); time.Since(began) != time.Second {
			t.Errorf("it went on for %s after its caller had left", time.Since(began)-time.Second)
		}
		for range wait.Tries(ctx, 3) {
			break
		}
		// a caller that goes on without an end does not wait forever
		if n := tries(context.WithoutCancel(ctx), 2); n != 2 {
			t.Errorf("%d tries without an end, want 2", n)
		}
	})
}

// If nothing is wrong, the first try is all there is, and costs nothing.
func TestFirstTryIsFree(t *testing.T) {
	ctx, cancel := wait.For(t.Context(), time.Hour)
	defer cancel()
	if allocated := testing.AllocsPerRun(100, func() {
		for range wait.Tries(ctx, 3) {
			break
		}
	}); allocated > 0 {
		t.Errorf("it allocates %v times", allocated)
	}
}

// Work for others continues when its caller leaves, for as long as a waiting caller would have.
func TestOutlasting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for within, want := range map[time.Duration]time.Duration{
			12 * time.Second: 12 * time.Second, time.Second: 5 * time.Second,
		} {
			ctx, leave := wait.For(t.Context(), within)
			work, cancel := wait.Outlasting(ctx, 5*time.Second)
			leave()
			end, _ := work.Deadline()
			if work.Err() != nil || !wait.Is(work) || time.Until(end) != want {
				t.Errorf("for a caller of %s: it ends after %s, %v; want %s", within, time.Until(end),
					work.Err(), want)
			}
			cancel()
		}
		hurried, leave := context.WithTimeout(t.Context(), time.Minute)
		defer leave()
		work, cancel := wait.Outlasting(hurried, 5*time.Second)
		defer cancel()
		if end, _ := work.Deadline(); wait.Is(work) || time.Until(end) != 5*time.Second {
			t.Errorf("for a caller that does not wait it ends after %s", time.Until(end))
		}
	})
}
