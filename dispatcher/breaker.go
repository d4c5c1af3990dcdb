package dispatcher

import (
	"errors"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"

	"verifyd/dispatcher/callback"
	"verifyd/natsconf/fleet"
	"verifyd/sessions/failure"
)

const (
	// breakerTrips is how many dials in a row must fail to reach the receiver for the breaker to open.
	breakerTrips = 5
	// minBreakerPause and breakerSpread set when a delivery that found the breaker open is tried again:
	// spread out, so that the probe is one of them and the rest do not arrive at once.
	minBreakerPause = time.Second
	breakerSpread   = 2 // times the time a breaker stays open
)

// breaker is the circuit breaker of a destination: it opens after several dials in a row that did not reach
// the receiver, and from time to time lets one delivery through as a probe. A delivery that it holds back
// costs no dial.
type breaker struct {
	circuit *gobreaker.TwoStepCircuitBreaker[struct{}]
	openFor time.Duration
	random  func() float64

	mu          sync.Mutex
	since       time.Time         // when it left the closed state; zero while it is closed
	lastFailure *callback.NotSent // why the last dial did not reach the receiver
}

func newBreaker(d *shared) *breaker {
	b := &breaker{openFor: d.c.BreakerOpen, random: d.c.Random}
	b.circuit = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests: 1,
		Timeout:     d.c.BreakerOpen,
		IsExcluded:  func(err error) bool { return errors.Is(err, errUntried) },
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= breakerTrips },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			d.metrics.breakers.WithLabelValues(from.String()).Dec()
			d.metrics.breakers.WithLabelValues(to.String()).Inc()
			b.stateChanged(to, d.now())
		},
	})
	d.metrics.breakers.WithLabelValues(b.circuit.State().String()).Inc()
	return b
}

// stateChanged records since when deliveries do not pass as they come.
func (b *breaker) stateChanged(to gobreaker.State, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case to == gobreaker.StateClosed:
		b.since, b.lastFailure = time.Time{}, nil
	case b.since.IsZero():
		b.since = at
	}
}

// recordFailure records why the receiver was not reached.
func (b *breaker) recordFailure(n *callback.NotSent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lastFailure = n
}

// What a delivery learnt about whether its receiver can be reached; nil: it reached it.
var (
	errMissed = errors.New("nobody was reached")
	// it needed no dial, or failed before one, which shows nothing about the receiver
	errUntried = errors.New("nobody was dialled")
)

// allow asks whether one delivery may go. If so, report takes what the delivery learnt; otherwise it is nil,
// and the delivery may ask again after wait.
func (b *breaker) allow() (report func(learnt error), wait time.Duration) {
	report, err := b.circuit.Allow()
	if err != nil {
		return nil, minBreakerPause + time.Duration(b.random()*float64(breakerSpread*b.openFor))
	}
	return report, 0
}

// open reports whether deliveries are held back at this moment. The last failure is kept only while they are.
func (b *breaker) open() bool { return b.circuit.State() == gobreaker.StateOpen }

// closed reports whether deliveries pass as they come.
func (b *breaker) closed() bool { return b.circuit.State() == gobreaker.StateClosed }

// forget removes a breaker from the measurements when its destination ends.
func (b *breaker) forget(m *metrics) { m.breakers.WithLabelValues(b.circuit.State().String()).Dec() }

// contactOf returns what a class shows about the receiver. A refused address, a missing secret and a failing
// proxy show nothing about it.
func contactOf(c failure.Class) error {
	if c == failure.Connect || c == failure.TLS || c == failure.DNS {
		return errMissed
	}
	return errUntried
}

// snapshot returns the state of the breaker.
func (b *breaker) snapshot() fleet.Host {
	// this may change the state, so the lock below is not held yet
	h := fleet.Host{Breaker: b.circuit.State().String()}
	b.mu.Lock()
	defer b.mu.Unlock()
	h.Since = b.since
	if n := b.lastFailure; n != nil {
		h.Class, h.Detail = string(n.Class), n.Detail
	}
	return h
}
