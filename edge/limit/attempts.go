package limit

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"verifyd/edge/account"
)

// Trip is a way to an identity network and back, in logs and metrics.
type Trip string

// The trips.
const (
	TripSignIn    Trip = "sign_in"   // a user's, for a session
	TripDashboard Trip = "dashboard" // a login to the dashboard
)

// DefaultSignIns is how many sign-ins one address may start: 600 at once and 600 a minute. A school or a
// carrier has hundreds of people behind one address, who come within the same minute; a program that tries to
// fill the store or to annoy an identity network makes as many in a second.
var DefaultSignIns = account.Rate{Count: 600, Per: time.Minute, Burst: 600}

const (
	// returnShare is the part of an address's starts that may be returns without an identity, or under way:
	// 120 at once. A network that takes ten seconds to answer has as many under way when 600 people come back
	// within 50 seconds.
	returnShare = 5
	// failedShare is how much slower these units come back than starts: 30 a minute. An address can make a
	// network do no more useless work than that.
	failedShare = 20
	// dashboardShare is how much slower the units of dashboard logins come back than those of a user's
	// sign-ins: 60 a minute, since each login is stored for half a day. The burst is the same: a class that
	// learns here is behind one address too.
	dashboardShare = 10
	// maxAddresses bounds each of the ten tables of addresses, 4 to 6 MiB. An address is in one while it
	// has used some of its allowance; for most that lasts a tenth of a second.
	maxAddresses = 1 << 14
	// maxSessions bounds each of the two tables of sessions, 8 to 10 MiB.
	maxSessions = 1 << 15
)

// sessionRate is how often one session's buttons may be pressed, and how often a browser may come back for
// it: far more than a person who tries each network twice, and 40 in the ten minutes of a session's life.
var sessionRate = account.Rate{Count: 2, Per: time.Minute, Burst: 20}

// The step at which an attempt was refused, in metrics.
const (
	stepStart  = "start"
	stepReturn = "return"
)

// The bound that refused an attempt, in metrics.
const (
	byAddress = "address"
	bySession = "session"
	byBrowser = "browser"
	byStray   = "stray"
)

// bounds are those of one step of one trip. session is nil if no session takes part.
type bounds struct {
	address addresses
	session *bound[string]
}

// Attempts bounds the attempts at identity networks, of users and at the dashboard: how often they start and
// how often they come back, by the client's address and by the session. It is kept per process, in bounded
// memory. Its methods are safe for concurrent use.
//
// A return takes a unit of its address, which is given back if the network vouched for somebody (Vouched). So
// however many people of one address sign in, only returns that are under way or failed count.
type Attempts struct {
	starts, returns map[Trip]bounds
	strays          addresses
	refused         *prometheus.CounterVec
}

// NewAttempts returns the bounds. rate is how many sign-ins one address may start; the others follow from it.
// r takes the measurements, none when nil. The error is ErrRate, or the registry's.
func NewAttempts(rate account.Rate, r prometheus.Registerer) (*Attempts, error) {
	a := &Attempts{
		starts: map[Trip]bounds{}, returns: map[Trip]bounds{},
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "verifyd_sign_in_refused_total",
			Help: "Attempts that were refused before the store or an identity network was asked, by " +
				"trip, step and what was exceeded.",
		}, []string{"trip", "step", "by"}),
	}
	logins := rate
	logins.Count = max(rate.Count/dashboardShare, 1)
	failed := account.Rate{
		Count: max(rate.Count/failedShare, 1), Per: rate.Per, Burst: max(rate.Burst/returnShare, 1),
	}
	for _, row := range []struct {
		steps   map[Trip]bounds
		trip    Trip
		address account.Rate
	}{
		{a.starts, TripSignIn, rate}, {a.returns, TripSignIn, failed}, {a.starts, TripDashboard, logins},
		{a.returns, TripDashboard, failed},
	} {
		b, err := newBounds(row.address, row.trip)
		if err != nil {
			return nil, err
		}
		row.steps[row.trip] = b
	}
	var err error
	if a.strays, err = newAddresses(failed, maxAddresses); err != nil || r == nil {
		return a, err
	}
	if err := r.Register(a.refused); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return a, nil
}

func newBounds(rate account.Rate, t Trip) (b bounds, err error) {
	if b.address, err = newAddresses(rate, maxAddresses); err != nil || t != TripSignIn {
		return b, err
	}
	b.session, err = newBound[string](sessionRate, maxSessions)
	return b, err
}

// Start asks whether an attempt may start: a press on a button. session is the session's id, empty at the
// dashboard. The result is how long to wait before the next try; 0: it may start.
func (a *Attempts) Start(t Trip, address netip.Addr, session string, now time.Time) time.Duration {
	return a.ask(a.starts[t], t, stepStart, address, session, now)
}

// Return asks whether a browser's return may be examined. Its result is that of Start.
func (a *Attempts) Return(t Trip, address netip.Addr, session string, now time.Time) time.Duration {
	return a.ask(a.returns[t], t, stepReturn, address, session, now)
}

// Vouched records that a return ended with the network vouching for its result.
func (a *Attempts) Vouched(t Trip, address netip.Addr) { a.returns[t].address.giveBack(address) }

// Stray asks whether the code of a return that belongs to no attempt of its browser may be stored as spent.
func (a *Attempts) Stray(t Trip, address netip.Addr, now time.Time) bool {
	d := a.strays.take(address, now)
	if !d.Allowed {
		a.count(t, stepReturn, byStray)
	}
	return d.Allowed
}

// OtherBrowser records a return to a browser that did not begin the attempt.
func (a *Attempts) OtherBrowser(t Trip) { a.count(t, stepReturn, byBrowser) }

// ask takes a unit of the address and, if there is one, of the session. A request that is refused for one of
// them uses no unit of the other.
func (a *Attempts) ask(b bounds, t Trip, step string, address netip.Addr, session string,
	now time.Time) time.Duration {
	d := b.address.take(address, now)
	if !d.Allowed {
		a.count(t, step, byAddress)
		return d.RetryAfter
	}
	if b.session == nil {
		return 0
	}
	if d = b.session.take(session, now); !d.Allowed {
		a.count(t, step, bySession)
		b.address.giveBack(address)
	}
	return d.RetryAfter
}

func (a *Attempts) count(t Trip, step, by string) {
	a.refused.WithLabelValues(string(t), step, by).Inc()
}
