package keymirror

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Measure shows how old the mirror's view may be, in a registry.
func (m *Mirror) Measure(r prometheus.Registerer) {
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "verifyd_key_mirror_age_seconds",
		Help: "Since when this process may not see changes of keys and accounts; 0 while it sees them " +
			"as they are stored.",
	}, func() float64 {
		since := m.BlindSince()
		if since.IsZero() {
			return 0
		}
		return time.Since(since).Seconds()
	}))
}
