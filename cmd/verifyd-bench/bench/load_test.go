package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// takes is an operation of a known length.
func takes(d time.Duration) step {
	return func(context.Context) error {
		time.Sleep(d) // in a bubble of synctest, where it costs no time
		return nil
	}
}

func TestClosedLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := closedLoop(t.Context(), time.Second, []step{
			takes(10 * time.Millisecond), takes(100 * time.Millisecond),
		})
		if l.ops() != 110 || l.took != time.Second || l.rate() != 110 || l.errors != 0 {
			t.Errorf("%d operations in %s, %d errors", l.ops(), l.took, l.errors)
		}
		if l.latencies[0] != 10*time.Millisecond || l.latencies[109] != 100*time.Millisecond {
			t.Errorf("latencies from %s to %s", l.latencies[0], l.latencies[109])
		}
	})
}

// Errors are counted and told, are no operations, and end a client that meets nothing else.
func TestErrorsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		now := func(context.Context) error {
			if n++; n%2 == 0 {
				return fmt.Errorf("number %d", n)
			}
			time.Sleep(10 * time.Millisecond) // of the bubble as well
			return nil
		}
		l := closedLoop(t.Context(), time.Second, []step{now})
		if l.ops() != 50 || l.errors != 50 || l.firstErr == nil || l.firstErr.Error() != "number 2" {
			t.Errorf("%d operations, %d errors, %v", l.ops(), l.errors, l.firstErr)
		}
		dead := errors.New("dead")
		l = closedLoop(t.Context(), time.Hour, []step{func(context.Context) error { return dead }})
		if l.ops() != 0 || l.errors != maxErrors || !errors.Is(l.firstErr, dead) {
			t.Errorf("%d operations, %d errors, %v", l.ops(), l.errors, l.firstErr)
		}
	})
}

func TestClosedNumber(t *testing.T) {
	var done atomic.Int64
	count := func(context.Context) error { done.Add(1); return nil }
	if l := closedNumber(t.Context(), 1000, []step{count, count, count}); l.ops() != 1000 ||
		done.Load() != 1000 || l.errors != 0 {
		t.Errorf("%d operations, %d done, %d errors", l.ops(), done.Load(), l.errors)
	}
}

// A schedule does not wait for a server that stalls: what was due meanwhile counts from when it was due. A
// closed loop would tell of one slow operation where users met a hundred.
func TestPacedLoopHidesNoStall(t *testing.T) {
	const stall, rate = 200 * time.Millisecond, 500.0
	n := 0
	once := func(context.Context) error {
		if n++; n == 10 {
			<-time.After(stall)
		}
		return nil
	}
	l := pacedLoop(t.Context(), rate, time.Second, []step{once})
	if l.ops() != 500 || l.errors != 0 {
		t.Errorf("%d operations, %d errors", l.ops(), l.errors)
	}
	late := 0
	for _, d := range l.latencies {
		if d > stall/2 {
			late++
		}
		if d < 0 {
			t.Errorf("an operation ended %s before it was due", -d)
		}
	}
	if late < 45 { // 50 are due in half of the stall
		t.Errorf("%d operations count as late", late)
	}
}

func TestPaceKeepsItsSchedule(t *testing.T) {
	var at []time.Time
	early := 0
	pace(t.Context(), 1000, 200, func(due time.Time) {
		at = append(at, due)
		if time.Now().Before(due) {
			early++
		}
	})
	if len(at) != 200 || early > 0 {
		t.Fatalf("%d calls, %d of them early", len(at), early)
	}
	for i, due := range at {
		if d := due.Sub(at[0]); d != time.Duration(i)*time.Millisecond {
			t.Fatalf("call %d is due %s after the first", i, d)
		}
	}
}

func TestPaceEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	pace(ctx, 1000, 1_000_000, func(time.Time) {
		if calls++; calls == 3 {
			cancel()
		}
	})
	if calls != 3 {
		t.Errorf("%d calls", calls)
	}
}

func TestInParallelGivesTheFirstError(t *testing.T) {
	var done atomic.Int64
	if err := inParallel(t.Context(), 8, 1000,
		func(context.Context, int) error { done.Add(1); return nil }); err != nil || done.Load() != 1000 {
		t.Errorf("%d done, %v", done.Load(), err)
	}
	bad := errors.New("bad")
	err := inParallel(t.Context(), 8, 1_000_000, func(_ context.Context, i int) error {
		if i == 20 {
			return bad
		}
		return nil
	})
	if !errors.Is(err, bad) {
		t.Error(err)
	}
}

// The generator must cost less than what it measures, or it measures itself: net/http's server, doing
// nothing, is slower than it.
func TestGeneratorIsCheaperThanAServer(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped under -short: it measures")
	}
	prepared, address, err := newPreparedServer(t.Context(), childConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(prepared.close)
	bare, bareAddress, err := newBareHandler(t.Context(), childConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bare.close)
	rate := func(address string) float64 {
		l := newHTTPLoad(16, address,
			httpRequest(http.MethodPost, address, initPath, jsonHeader, initBody("https://a.example/")))
		defer l.close()
		got := closedLoop(t.Context(), 200*time.Millisecond, l.steps)
		if got.errors > 0 {
			t.Fatal(got.firstErr)
		}
		return got.rate()
	}
	for try := 1; ; try++ { // others may use the machine just now
		generator, handler := rate(address), rate(bareAddress)
		t.Logf("generator %.0f/s, bare handler %.0f/s", generator, handler)
		if generator > 1.3*handler {
			return
		}
		if try == 5 {
			t.Fatal("the generator is not clearly faster than the cheapest server that it measures")
		}
	}
}

func TestInitBodyIsWhatTheContractSays(t *testing.T) {
	want := `{"platform":"discord","platform_user_id":"sailor_42","guild_id":"118203948571029384","callback_url":"https://a.example/x"}`
	if got := initBody("https://a.example/x"); got != want {
		t.Errorf("%s", got)
	}
	if r := string(httpRequest("POST", "a:1", "/x", "", "{}")); !strings.Contains(r,
		"\r\nContent-Length: 2\r\n\r\n{}") {
		t.Errorf("%q", r)
	}
}
