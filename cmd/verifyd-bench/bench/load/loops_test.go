package load

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// takes is an operation of a known length.
func takes(d time.Duration) Step {
	return func(context.Context) error {
		time.Sleep(d) // in a bubble of synctest, where it costs no time
		return nil
	}
}

func TestClosedLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Closed(t.Context(), time.Second, []Step{
			takes(10 * time.Millisecond), takes(100 * time.Millisecond),
		})
		if l.Ops() != 110 || l.Took != time.Second || l.Rate() != 110 || l.Errors != 0 {
			t.Errorf("%d operations in %s, %d errors", l.Ops(), l.Took, l.Errors)
		}
		if l.Latencies[0] != 10*time.Millisecond || l.Latencies[109] != 100*time.Millisecond {
			t.Errorf("latencies from %s to %s", l.Latencies[0], l.Latencies[109])
		}
	})
}

// Errors are counted and reported, are no operations, and end a client that meets nothing else.
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
		l := Closed(t.Context(), time.Second, []Step{now})
		if l.Ops() != 50 || l.Errors != 50 || l.FirstErr == nil || l.FirstErr.Error() != "number 2" {
			t.Errorf("%d operations, %d errors, %v", l.Ops(), l.Errors, l.FirstErr)
		}
		dead := errors.New("dead")
		l = Closed(t.Context(), time.Hour, []Step{func(context.Context) error { return dead }})
		if l.Ops() != 0 || l.Errors != maxErrors || !errors.Is(l.FirstErr, dead) {
			t.Errorf("%d operations, %d errors, %v", l.Ops(), l.Errors, l.FirstErr)
		}
	})
}

func TestClosedNumber(t *testing.T) {
	var done atomic.Int64
	count := func(context.Context) error { done.Add(1); return nil }
	if l := ClosedNumber(t.Context(), 1000, []Step{count, count, count}); l.Ops() != 1000 ||
		done.Load() != 1000 || l.Errors != 0 {
		t.Errorf("%d operations, %d done, %d errors", l.Ops(), done.Load(), l.Errors)
	}
}

// A schedule does not wait for a server that stalls: what was due meanwhile counts from when it was due. A
// closed loop would report one slow operation although users met a hundred.
func TestPacedLoopHidesNoStall(t *testing.T) {
	const stall, rate = 200 * time.Millisecond, 500.0
	n := 0
	once := func(context.Context) error {
		if n++; n == 10 {
			<-time.After(stall)
		}
		return nil
	}
	l := Paced(t.Context(), rate, time.Second, []Step{once})
	if l.Ops() != 500 || l.Errors != 0 {
		t.Errorf("%d operations, %d errors", l.Ops(), l.Errors)
	}
	late := 0
	for _, d := range l.Latencies {
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
	Pace(t.Context(), 1000, 200, func(due time.Time) {
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
	Pace(ctx, 1000, 1_000_000, func(time.Time) {
		if calls++; calls == 3 {
			cancel()
		}
	})
	if calls != 3 {
		t.Errorf("%d calls", calls)
	}
}

func TestInParallelReturnsTheFirstError(t *testing.T) {
	var done atomic.Int64
	if err := InParallel(t.Context(), 8, 1000,
		func(context.Context, int) error { done.Add(1); return nil }); err != nil || done.Load() != 1000 {
		t.Errorf("%d done, %v", done.Load(), err)
	}
	bad := errors.New("bad")
	err := InParallel(t.Context(), 8, 1_000_000, func(_ context.Context, i int) error {
		if i == 20 {
			return bad
		}
		return nil
	})
	if !errors.Is(err, bad) {
		t.Error(err)
	}
}

func TestInitBodyMatchesTheContract(t *testing.T) {
	want := `{"platform":"discord","platform_user_id":"sailor_42","guild_id":"118203948571029384",` +
		`"callback_url":"https://a.example/x"}`
	if got := initBody("https://a.example/x"); got != want {
		t.Errorf("%s", got)
	}
	if r := string(Request("POST", "a:1", "/x", "", "{}")); !strings.Contains(r,
		"\r\nContent-Length: 2\r\n\r\n{}") {
		t.Errorf("%q", r)
	}
}
