package limit

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"verifyd/edge/account"
)

// rates draws rates from one an hour to a thousand a nanosecond, most of them with intervals that are no
// whole nanoseconds. The shortest periods are where a wrong rounding shows within few requests.
func rates() *rapid.Generator[account.Rate] {
	return rapid.Custom(func(t *rapid.T) account.Rate {
		per := rapid.OneOf(rapid.Int64Range(1, 100),
			rapid.Int64Range(int64(time.Millisecond), int64(time.Hour)))
		return account.Rate{
			Count: rapid.IntRange(1, 1000).Draw(t, "count"),
			Per:   time.Duration(per.Draw(t, "per")),
			Burst: rapid.IntRange(1, 50).Draw(t, "burst"),
		}
	})
}

// instants draws ascending request times, from bursts at one instant to pauses of several windows.
func instants(t *rapid.T, r account.Rate) []time.Duration {
	limit := int64(interval(r)) * int64(r.Burst+2)
	steps := rapid.SliceOfN(rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, int64(interval(r))),
		rapid.Int64Range(0, limit)), 1, 200).Draw(t, "steps")
	at, now := make([]time.Duration, len(steps)), time.Duration(0)
	for i, step := range steps {
		now += time.Duration(step)
		at[i] = now
	}
	return at
}

func TestNoWindowHoldsMoreThanBurstAndRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rates().Draw(t, "rate")
		var allowed []time.Duration
		var s State
		for _, now := range instants(t, r) {
			next, d := Decide(s, r, now)
			if d.Allowed {
				allowed = append(allowed, now)
			}
			s = next
		}
		for i, from := range allowed {
			for j := i; j < len(allowed); j++ {
				took, window := j-i+1, allowed[j]-from
				// Count·window/Per, without rounding: took-Burst at most that many.
				if extra := took - r.Burst; extra > 0 &&
					int64(extra)*int64(r.Per) > int64(window)*int64(r.Count) {
					t.Fatalf("%+v: %d sessions within %s", r, took, window)
				}
			}
		}
	})
}

func TestDecisionsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rates().Draw(t, "rate")
		var s State
		for _, now := range instants(t, r) {
			next, d := Decide(s, r, now)
			if d.Limit != r.Burst {
				t.Fatalf("limit = %d, want the burst %d", d.Limit, r.Burst)
			}
			if d.Allowed {
				checkAllowed(t, r, next, d, now)
			} else {
				checkRefused(t, r, s, next, d, now)
			}
			s = next
		}
	})
}

func checkAllowed(t *rapid.T, r account.Rate, s State, d Decision, now time.Duration) {
	if d.RetryAfter != 0 {
		t.Fatalf("allowed with a wait of %s", d.RetryAfter)
	}
	if got := burstAt(s, r, now); got != d.Remaining {
		t.Fatalf("remaining = %d, but %d more were allowed", d.Remaining, got)
	}
	if got := burstAt(s, r, now+d.ResetAfter); got != r.Burst {
		t.Fatalf("after the reset %d were allowed, want %d", got, r.Burst)
	}
	if got := burstAt(s, r, now+d.ResetAfter-1); got == r.Burst {
		t.Fatal("the whole burst was there 1 ns before the reset")
	}
}

func checkRefused(t *rapid.T, r account.Rate, before, after State, d Decision, now time.Duration) {
	if d.Remaining != 0 || d.RetryAfter <= 0 {
		t.Fatalf("refused with %+v", d)
	}
	if after != before {
		t.Fatalf("a refusal moved the state from %d to %d", before, after)
	}
	if _, again := Decide(after, r, now+d.RetryAfter-1); again.Allowed {
		t.Fatalf("allowed 1 ns before RetryAfter (%s)", d.RetryAfter)
	}
	if _, again := Decide(after, r, now+d.RetryAfter); !again.Allowed {
		t.Fatalf("refused after RetryAfter (%s)", d.RetryAfter)
	}
}

// burstAt counts how many requests at one instant are allowed.
func burstAt(s State, r account.Rate, now time.Duration) (n int) {
	for {
		next, d := Decide(s, r, now)
		if !d.Allowed {
			return n
		}
		s, n = next, n+1
	}
}

func TestSustainedRateIsReached(t *testing.T) {
	r := account.Rate{Count: 20, Per: time.Second, Burst: 1}
	var s State
	n := 0
	for now := time.Duration(0); now < 10*time.Second; now += time.Millisecond {
		next, d := Decide(s, r, now)
		if d.Allowed {
			n++
		}
		s = next
	}
	if n != 200 {
		t.Errorf("%d sessions in 10 s at 20/s, want 200", n)
	}
}

// A clock set back, or a rate raised, must not lock a key out for longer than one interval of its rate.
func TestStateFarAheadIsCapped(t *testing.T) {
	r := account.Rate{Count: 20, Per: time.Second, Burst: 40}
	if _, d := Decide(State(time.Hour), r, 0); d.Allowed || d.RetryAfter != 50*time.Millisecond {
		t.Errorf("decision = %+v, want a wait of 50ms", d)
	}
}

func TestDecideDoesNotAllocate(t *testing.T) {
	var s State
	now := time.Duration(0)
	if n := testing.AllocsPerRun(100, func() {
		now += time.Millisecond
		s, _ = Decide(s, defaultRate, now)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkDecide(b *testing.B) {
	var s State
	now := time.Duration(0)
	for b.Loop() {
		now += time.Millisecond
		s, _ = Decide(s, defaultRate, now)
	}
}
