package signin

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"verifyd/sessions"
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
