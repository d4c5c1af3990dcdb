package limit

import (
	"math"
	"time"

	"verifyd/edge/account"
)

// Window is the time from an empty allowance to a full one, in whole seconds, rounded up.
func Window(r account.Rate) time.Duration {
	return (interval(r)*time.Duration(r.Burst) + time.Second - 1).Truncate(time.Second)
}

// Rates limits keys in memory. Its size is bounded by the keys that were used within the last Window: keys
// whose allowance is full again are dropped when the table grows. Its methods are safe for concurrent use.
type Rates struct {
	*bound[string] // of keys that have no rate of their own

	spent map[string]Spending // since takeSpent last took it; nil: it is not taken
	news  chan struct{}       // one place: something was allowed since takeSpent
}

// Spending is what a key was allowed, as the time that its rate takes to allow as many sessions.
type Spending struct {
	Worth time.Duration `json:"worth"` // nanoseconds
}

// maxDebt bounds by how much the spending of other edges may put a key off: what they allowed at the same
// moment, before they could report it. Beyond that it is forgiven.
const maxDebt = 30 * time.Second

// NewRates returns a limiter. standard is the rate of keys that have none of their own. The error is ErrRate.
func NewRates(standard account.Rate) (*Rates, error) {
	b, err := newBound[string](standard, math.MaxInt)
	return &Rates{bound: b, news: make(chan struct{}, 1)}, err
}

// RateOf returns the rate that binds a key: its own, or the service's if it has none. A burst of 0 means the
// count; a stored rate that is not valid counts as none, since a key must not be without limit.
func (l *Rates) RateOf(k account.Key) account.Rate {
	r := k.RateLimit
	if r == (account.Rate{}) {
		return l.rate
	}
	if r.Burst == 0 {
		r.Burst = r.Count
	}
	if Valid(r) != nil {
		return l.rate
	}
	return r
}

// Allow judges a request with the key at now, and remembers it if it is allowed.
func (l *Rates) Allow(k account.Key, now time.Time) Decision {
	rate, at := l.RateOf(k), now.Sub(l.epoch)
	l.mu.Lock()
	defer l.mu.Unlock()
	state := l.state(k.ID, at)
	// Spending beyond the whole burst is debt: other edges allowed it at the same time. It is paid before
	// anything is allowed.
	debt := min(max(time.Duration(state)-at-interval(rate)*time.Duration(rate.Burst), 0), maxDebt)
	state, d := Decide(state, rate, at)
	l.states[k.ID] = state + State(debt)
	d.ResetAfter += debt
	if !d.Allowed {
		d.RetryAfter += debt
	} else if l.spent != nil {
		l.spent[k.ID] = Spending{l.spent[k.ID].Worth + interval(rate)}
		select {
		case l.news <- struct{}{}:
		default:
		}
	}
	return d
}

// share makes the limiter remember what it allows, for takeSpent; the channel has a value when there is
// something.
func (l *Rates) share() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.spent == nil {
		l.spent = map[string]Spending{}
	}
	return l.news
}

// takeSpent returns what was allowed since its last call, by the key's id.
func (l *Rates) takeSpent() map[string]Spending {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.spent
	l.spent = map[string]Spending{}
	return all
}

// addSpent adds to the count what another edge allowed a key.
func (l *Rates) addSpent(key string, worth time.Duration, now time.Time) {
	at := now.Sub(l.epoch)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.states[key] = max(l.state(key, at), State(at)) + State(min(max(worth, 0), maxRefill))
}
