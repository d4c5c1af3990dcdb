package signin

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"verifyd/edge/network"
	"verifyd/sessions"
	sessionfailure "verifyd/sessions/failure"
	"verifyd/sessions/store"
	"verifyd/sessions/timeline"
)

// noNetwork is the label of a step without a network, in metrics.
const noNetwork = "none"

// metrics are the measurements of the way through the sign-in. Labels are the events of the timeline, the ids
// of configured networks, and the classes of failure.
type metrics struct {
	steps    *prometheus.CounterVec // by step and network
	failures *prometheus.CounterVec // by network and class
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		steps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "verifyd_sign_in_steps_total",
			Help: "Steps of users through the sign-in, by step and network: opened the page (a reload " +
				"counts), sign_in, returned, finished.",
		}, []string{"step", "network"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "verifyd_sign_in_troubles_total",
			Help: "Sign-ins that ended without anybody's verdict, by network and class.",
		}, []string{"network", "class"}),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.steps, m.failures} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

// stepLog is where the user's way through the sign-in is noted: the timeline, the measurements, the log.
type stepLog struct {
	sessions *store.Store
	metrics  *metrics
	log      zerolog.Logger
}

// stepped puts a step of the user's way where it is counted, and counts it here.
func (j *stepLog) stepped(s sessions.Session, e timeline.Event) {
	network := e.Network
	if network == "" {
		network = noNetwork
	}
	j.metrics.steps.WithLabelValues(string(e.Name), network).Inc()
	j.sessions.Step(s, e)
}

// recordFailure does the same for a sign-in that ended without a verdict.
func (j *stepLog) recordFailure(s sessions.Session, network string, t *failure) {
	j.metrics.failures.WithLabelValues(network, t.class).Inc()
	j.sessions.Step(s, timeline.Event{Name: timeline.EventNetworkError, Network: network, Detail: t.Error()})
}

// Classes of failure that only this package sees, in addition to those of package network.
const (
	classMixUp     = "mix_up"    // the return arrived at another network's address
	classGone      = "gone"      // the network is no longer configured
	classStore     = "store"     // the store could not say whether the code or the identity is free
	classElsewhere = "elsewhere" // the code came to another browser before
)

// stageRules is the stage after those of package network.
const stageRules = "rules"

// failure is an attempt that ended without anybody's verdict: the stage, class and cause for logs, the notice
// for the user.
type failure struct {
	stage, class string
	note         notice
	// what the network says of it, with what an operator can do; empty if the class says all
	cause string
}

func (t *failure) Error() string { return t.stage + ": " + t.class }

// failureOf returns the failure of an error.
func failureOf(err error) *failure {
	var own *failure
	var theirs *network.Error
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &theirs):
		return &failure{theirs.Stage, theirs.Class, noteFor(theirs.Class), theirs.Error()}
	default:
		return &failure{stage: "unknown", class: "unknown", note: noteUnfinished}
	}
}

// noteFor distinguishes what waiting cures from what the user should report to somebody.
func noteFor(class string) notice {
	switch {
	case network.Passing(class):
		return noteUnreachable
	case class == network.ClassEarly, class == network.ClassExpired:
		// the provider's clock or ours is wrong: a token that was just made is of the past or of the future
		return noteClock
	default:
		return noteUnfinished
	}
}

// stepEvent is the log line of a step of a sign-in.
type stepEvent struct{ *zerolog.Event }

// step begins the log line of a step of a sign-in. Of the identity, the code, the state and the token it
// holds nothing.
func (j *stepLog) step(s sessions.Status, network string) stepEvent {
	e := j.log.Info().Str("sid", string(s.ID)). //nolint:zerologlint // the caller sends it
							Str("account", s.Account)
	if network != "" {
		e = e.Str("network", network)
	}
	return stepEvent{e}
}

// outcome adds the verdict, and what is stored instead of it: another state, or a doubt.
func (l stepEvent) outcome(o sessions.Outcome, standing sessions.State, doubt notice) stepEvent {
	e := l.Str("outcome", string(o.State))
	if o.Reason != sessions.NoReason {
		e = e.Str("reason", string(o.Reason))
	}
	if o.Rule != sessionfailure.NoRule {
		e = e.Str("rule", string(o.Rule))
	}
	switch {
	case doubt != "":
		e = e.Str("standing", string(doubt))
	case standing != o.State:
		e = e.Str("standing", string(standing))
	}
	return stepEvent{e}
}

func (l stepEvent) failure(t *failure) stepEvent {
	e := l.Str("outcome", "trouble").Str("stage", t.stage).Str("class", t.class)
	if t.cause != "" {
		e = e.Str("cause", t.cause)
	}
	return stepEvent{e}
}

func (l stepEvent) took(d time.Duration) stepEvent { return stepEvent{l.Dur("took", d)} }
