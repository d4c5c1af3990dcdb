package limit

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
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

const (
	// maxCount bounds count and burst. Beyond a million sessions a second the rate is not the limit; and the
	// product of burst and interval stays far from the end of a time.Duration.
	maxCount = 1_000_000
	// maxRefill bounds the time from empty to full for the same reason.
	maxRefill = 31 * 24 * time.Hour
)

// ErrRate is returned, wrapped with the fault, for a rate that cannot be used.
var ErrRate = errors.New(
	`not a rate; write a count and a unit of s, m or h, as in "20/s", "100/m" or "1000/h"`)

var units = map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}

// ParseRate reads a rate such as "20/s", "100/m" or "1000/h". Its burst is its count: one unit's worth at
// once. The error is ErrRate.
func ParseRate(s string) (account.Rate, error) {
	count, unit, _ := strings.Cut(s, "/")
	n, err := strconv.ParseUint(count, 10, 32)
	per := units[unit]
	if err != nil || per == 0 {
		return account.Rate{}, fmt.Errorf("%q is %w", s, ErrRate)
	}
	r := account.Rate{Count: int(n), Per: per, Burst: int(n)}
	if err := Valid(r); err != nil {
		return account.Rate{}, fmt.Errorf("%q: %w", s, err)
	}
	return r, nil
}

// RateText formats a rate as ParseRate reads it, and its burst if that differs.
func RateText(r account.Rate) string {
	unit := map[time.Duration]string{time.Second: "s", time.Minute: "m", time.Hour: "h"}[r.Per]
	if unit == "" {
		unit = r.Per.String()
	}
	text := fmt.Sprintf("%d/%s", r.Count, unit)
	if r.Burst > 0 && r.Burst != r.Count {
		text += fmt.Sprintf(", bursts of %d", r.Burst)
	}
	return text
}

// Valid returns an error unless a rate can be used: count and burst from 1 to 1,000,000, and from empty to
// full in at most 31 days. The error wraps ErrRate.
func Valid(r account.Rate) error {
	switch {
	case r.Count < 1 || r.Count > maxCount:
		return fmt.Errorf("%w: the count is %d, it may be 1 to %d", ErrRate, r.Count, maxCount)
	case r.Burst < 1 || r.Burst > maxCount:
		return fmt.Errorf("%w: the burst is %d, it may be 1 to %d", ErrRate, r.Burst, maxCount)
	case r.Per <= 0 || r.Per > maxRefill:
		return fmt.Errorf("%w: the period is %s, it may be up to %s", ErrRate, r.Per, maxRefill)
	case interval(r) > maxRefill/time.Duration(r.Burst):
		return fmt.Errorf("%w: a burst of %d takes longer than %s to come back", ErrRate, r.Burst, maxRefill)
	}
	return nil
}
