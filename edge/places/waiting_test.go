package places

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"verifyd/natsconf/wait"
)

// New requests are not counted, however many; waiting ones keep their slots until they release them, and no
// further request gets one.
func TestPlacesToWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit = 3
		w := NewWaiting(12*time.Second, limit)
		var leave []func()
		for i := range 2 * limit {
			ctx, done, err := w.Begin(t.Context(), Request{Of: strconv.Itoa(i)})
			if err != nil {
				t.Fatalf("a crowd without faults is refused: %v", err)
			}
			if end, _ := ctx.Deadline(); !wait.Is(ctx) || time.Until(end) != 12*time.Second {
				t.Errorf("it waits until %s", end)
			}
			leave = append(leave, done)
		}
		ctx, done, err := w.Begin(t.Context(), Request{Waited: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if end, _ := ctx.Deadline(); time.Until(end) != 7*time.Second {
			t.Errorf("after 5 s it waits until %s", end)
		}
		done()
		time.Sleep(2 * Pools.Store.Aged) // of the bubble
		if _, _, err := w.Begin(t.Context(), Request{}); !errors.Is(err, ErrNoPlace) {
			t.Errorf("beside %d who wait: %v", len(leave), err)
		}
		for _, done := range leave[:limit+1] {
			done()
		}
		ctx, done, err = w.Begin(t.Context(), Request{})
		if err != nil {
			t.Fatalf("beside %d who wait: %v", limit-1, err)
		}
		done()
		if !errors.Is(ctx.Err(), context.Canceled) {
			t.Error("what asks the store goes on when its request has ended")
		}
		for _, done := range leave[limit+1:] {
			done()
		}
		time.Sleep(2 * Pools.Store.Aged) // nothing counts late
		if w.places.all != 0 || len(w.places.of) != 0 {
			t.Errorf("%d are left, of %v", w.places.all, w.places.of)
		}
	})
}

// Nobody's requests keep out those of others, whether they come one after the other or all at once, before
// any counts as waiting; and what must pass does so where others no longer do.
func TestPlacesToWaitAreShared(t *testing.T) {
	t.Parallel()
	for name, burst := range map[string]int{"one after the other": 1, "at once": 200} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const limit, kept = 40, 5
				w := NewWaiting(time.Hour, limit)
				waits := func(of string, must bool) bool {
					_, done, err := w.Begin(t.Context(), Request{Of: of, Must: must})
					if err == nil {
						t.Cleanup(done)
					}
					return err == nil
				}
				old := func() { time.Sleep(2 * Pools.Store.Aged) } // of the bubble
				n := 0
				for range max(limit, burst) {
					if waits("greedy", true) {
						n++
					}
					if burst == 1 {
						old()
					}
				}
				old()
				if want := max(limit/2, burst); n != want || waits("greedy", true) {
					t.Errorf("the requests of one are %d, want %d", n, want)
				}
				others := 0
				for i := range limit {
					if waits(strconv.Itoa(i), false) {
						others++
					}
					old()
				}
				if want := limit - limit/2 - kept; others != want {
					t.Errorf("%d others wait beside it, want %d", others, want)
				}
				starts := 0
				for i := range limit {
					if waits("start "+strconv.Itoa(i), true) {
						starts++
					}
					old()
				}
				if starts != kept {
					t.Errorf("%d starts wait beside them, want %d", starts, kept)
				}
			})
		})
	}
}

// However many there are who each take what they can get, a newcomer finds a place to wait: 128 of them take
// all, where ten did.
func TestGreedyCrowdLeavesPlacesToWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := NewWaiting(time.Hour, DefaultWaiting)
		n := 0
		for greedy := range 127 {
			for {
				_, done, err := w.Begin(t.Context(), Request{Of: strconv.Itoa(greedy), Must: true})
				if err != nil {
					break
				}
				n++
				t.Cleanup(done)
				time.Sleep(Pools.Store.Aged + 1) // of the bubble
			}
		}
		_, done, err := w.Begin(t.Context(), Request{Of: "newcomer", Must: true})
		if err != nil {
			t.Fatalf("a newcomer has no place beside %d: %v", n, err)
		}
		done()
	})
}
