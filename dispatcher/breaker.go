package dispatcher

import (
	"math/rand/v2"
	"time"

	"github.com/sony/gobreaker/v2"

	"verifyd/sessions"
)

const (
	// breakerTrips is after how many dials in a row that reached nobody a destination is left alone for a while.
	breakerTrips = 5
	// breakerLeast and breakerSpread say when a delivery that met an open breaker comes again: spread out, so that the probe is
	// one of them and the rest do not arrive at once.
	breakerLeast  = time.Second
	breakerSpread = 2 // times the time a breaker stays open
)

// breaker is the circuit breaker of a destination: it opens after several dials in a row that reached nobody, and from time to time
// lets one delivery through as a probe. What it holds back costs no dial.
type breaker struct {
	two     *gobreaker.TwoStepCircuitBreaker[struct{}]
	openFor time.Duration
}

func newBreaker(d *Dispatcher) *breaker {
	b := &breaker{openFor: d.c.BreakerOpen, two: gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests: 1,
		Timeout:     d.c.BreakerOpen,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= breakerTrips },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			d.metrics.breakers.WithLabelValues(from.String()).Dec()
			d.metrics.breakers.WithLabelValues(to.String()).Inc()
		},
	})}
	d.metrics.breakers.WithLabelValues(b.two.State().String()).Inc()
	return b
}

// pass asks for one delivery. Where it may go, passed takes whether its receiver was reached; otherwise it is nil, and the delivery
// may ask again after wait.
func (b *breaker) pass() (passed func(reached bool), wait time.Duration) {
	done, err := b.two.Allow()
	if err != nil {
		return nil, breakerLeast + rand.N(breakerSpread*b.openFor) //nolint:gosec // jitter
	}
	return func(reached bool) {
		if reached {
			done(nil)
			return
		}
		done(errUnreachable)
	}, 0
}

// open says whether deliveries are held back at this moment. What they met is remembered only as long as that lasts.
func (b *breaker) open() bool { return b.two.State() == gobreaker.StateOpen }

// forget takes a breaker that goes with its destination out of the measurements.
func (b *breaker) forget(m *metrics) { m.breakers.WithLabelValues(b.two.State().String()).Dec() }

// unreachable says whether a class means that nobody was reached, as opposed to a receiver, or an address, that is refused.
func unreachable(c sessions.Class) bool {
	return c == sessions.ClassConnect || c == sessions.ClassTLS || c == sessions.ClassDNS
}
