package dispatcher

import (
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"

	"verifyd/dispatcher/callback"
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

	mu      sync.Mutex
	since   time.Time         // when it left the closed state; zero while it is closed
	trouble *callback.NotSent // why nobody was reached the last time
}

func newBreaker(d *Dispatcher) *breaker {
	b := &breaker{openFor: d.c.BreakerOpen}
	b.two = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests: 1,
		Timeout:     d.c.BreakerOpen,
		IsExcluded:  func(err error) bool { return errors.Is(err, errUntried) },
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= breakerTrips },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			d.metrics.breakers.WithLabelValues(from.String()).Dec()
			d.metrics.breakers.WithLabelValues(to.String()).Inc()
			b.turn(to, d.now())
		},
	})
	d.metrics.breakers.WithLabelValues(b.two.State().String()).Inc()
	return b
}

// turn notes since when deliveries do not pass as they come.
func (b *breaker) turn(to gobreaker.State, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case to == gobreaker.StateClosed:
		b.since, b.trouble = time.Time{}, nil
	case b.since.IsZero():
		b.since = at
	}
}

// missed notes why nobody was reached.
func (b *breaker) missed(n *callback.NotSent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trouble = n
}

// contact is what a delivery learnt about whether its receiver can be reached.
type contact int

const (
	untried contact = iota // it needed no dial, or failed before one, which says nothing about the receiver
	reached
	missed
)

// What a breaker is told of a delivery that reached nobody, and of one that did not try.
var (
	errMissed  = errors.New("nobody was reached")
	errUntried = errors.New("nobody was dialled")
)

// pass asks for one delivery. Where it may go, passed takes what it learnt; otherwise it is nil, and the delivery may ask again after
// wait.
func (b *breaker) pass() (passed func(contact), wait time.Duration) {
	done, err := b.two.Allow()
	if err != nil {
		return nil, breakerLeast + rand.N(breakerSpread*b.openFor) //nolint:gosec // jitter
	}
	return func(c contact) {
		switch c {
		case reached:
			done(nil)
		case missed:
			done(errMissed)
		case untried:
			done(errUntried)
		}
	}, 0
}

// open says whether deliveries are held back at this moment. What they met is remembered only as long as that lasts.
func (b *breaker) open() bool { return b.two.State() == gobreaker.StateOpen }

// closed says whether deliveries pass as they come.
func (b *breaker) closed() bool { return b.two.State() == gobreaker.StateClosed }

// forget takes a breaker that goes with its destination out of the measurements.
func (b *breaker) forget(m *metrics) { m.breakers.WithLabelValues(b.two.State().String()).Dec() }

// contactOf gives what a class says about the receiver. An address that is refused, a secret that is missing and a proxy that fails
// say nothing about it.
func contactOf(c sessions.Class) contact {
	if c == sessions.ClassConnect || c == sessions.ClassTLS || c == sessions.ClassDNS {
		return missed
	}
	return untried
}
