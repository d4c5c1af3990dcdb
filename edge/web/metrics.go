package web

import (
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the figures of the public handler. Every label has few values: route names, classes of status,
// problem codes.
type metrics struct {
	inFlight prometheus.Gauge
	took     *prometheus.HistogramVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "verifyd_http_requests_in_flight", Help: "Requests being answered now.",
		}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "verifyd_http_request_duration_seconds",
			Help: "Time from the request's header to the end of its answer.",
			// A synced write takes a millisecond, two of them an init; VERIFYD_STORE_WAIT ends it at 12 s.
			Buckets: []float64{.0005, .001, .002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"route", "status"}),
	}
	for _, c := range []prometheus.Collector{m.inFlight, m.took} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) observe(event *RequestEvent, status int, took time.Duration) {
	observe(m.took.WithLabelValues(event.Name, statusClass(status)), took.Seconds(), event.trace())
}

// observe puts a value into a histogram, with the trace that it comes from, if there is one.
func observe(h prometheus.Observer, value float64, traceID string) {
	if e, ok := h.(prometheus.ExemplarObserver); ok && traceID != "" {
		e.ObserveWithExemplar(value, prometheus.Labels{"trace_id": traceID})
		return
	}
	h.Observe(value)
}

// statusClass returns "2xx" and the like; "none" if nothing was answered.
func statusClass(status int) string {
	if status == 0 {
		return "none"
	}
	return strconv.Itoa(status/100) + "xx"
}
