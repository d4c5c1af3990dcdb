package limit

import (
	"time"

	"verifyd/edge/account"
)

// Decision is the answer to one request under a rate.
type Decision struct {
	Allowed    bool
	Limit      int           // sessions that may be started at once, after a rest: the burst
	Remaining  int           // sessions that may be started at once from now on
	ResetAfter time.Duration // until Remaining is Limit again, if nothing else comes
	RetryAfter time.Duration // 0 when allowed; otherwise the shortest wait after which a request is allowed
}

// State is what GCRA remembers about one key: its theoretical arrival time, as a duration since an epoch of
// the caller's choice. Every state that is not after now is a full allowance.
type State time.Duration

// Decide is the generic cell rate algorithm: it judges a request at now (a duration since the same epoch as
// the state's) and returns the state to keep. A refused request leaves the allowance as it is. It does not
// allocate. The rate must be Valid.
//
// The state is never further ahead than the whole burst, so that neither a clock set back nor a rate that was
// raised can lock a key out for longer than one interval.
func Decide(s State, r account.Rate, now time.Duration) (State, Decision) {
	each := interval(r)
	whole := each * time.Duration(r.Burst)
	tat := min(max(time.Duration(s), now), now+whole)
	next := tat + each
	if wait := next - whole - now; wait > 0 {
		return State(tat), Decision{Limit: r.Burst, ResetAfter: tat - now, RetryAfter: wait}
	}
	left := int((now + whole - next) / each)
	return State(next), Decision{Allowed: true, Limit: r.Burst, Remaining: left, ResetAfter: next - now}
}

// full reports whether a state is equivalent to none: the allowance is whole again.
func (s State) full(now time.Duration) bool { return time.Duration(s) <= now }

// interval is the time between two sessions at the sustained rate, rounded up: rounding down would allow more
// than the rate.
func interval(r account.Rate) time.Duration {
	count := time.Duration(r.Count)
	return (r.Per + count - 1) / count
}
