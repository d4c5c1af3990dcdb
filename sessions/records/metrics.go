package records

import (
	"github.com/prometheus/client_golang/prometheus"

	"verifyd/sessions"
)

// noNetwork is the label of a completion in which no network took part, in measurements.
const noNetwork = "none"

// metrics are this package's measurements. Labels are words of the domain and the ids of configured
// networks.
type metrics struct {
	completions *prometheus.CounterVec // by outcome and network
	unreadable  *prometheus.CounterVec // by kind of fact or hint
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		completions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "verifyd_completions_total",
			Help: "Sessions that this process has completed, by outcome (verified, or the reason why " +
				"not) and network; none where no network took part.",
		}, []string{"outcome", "network"}),
		unreadable: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "verifyd_unreadable_facts_total",
			Help: "How often this process met something in the place of a session's fact, or of a " +
				"hint, that no verifyd has written, by what belongs there.",
		}, []string{"kind"}),
	}
	if r != nil {
		r.MustRegister(m.completions, m.unreadable)
	}
	return m
}

func (m *metrics) completed(o sessions.Outcome) {
	outcome, network := string(o.State), o.Network
	if o.Reason != sessions.NoReason {
		outcome = string(o.Reason)
	}
	if network == "" {
		network = noNetwork
	}
	m.completions.WithLabelValues(outcome, network).Inc()
}
