package natsconf

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the measurements of a connection, its writers and its reads. Labels are the names of streams
// and the words of this package.
type metrics struct {
	batches *prometheus.HistogramVec // by stream
	waiting *prometheus.GaugeVec     // by stream
	errors  *prometheus.CounterVec   // by stream, op and kind
}

// The operations on JetStream, in measurements.
const (
	opWrite = "write"
	opRead  = "read"
)

func newMetrics() *metrics {
	return &metrics{
		batches: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "verifyd_writer_batch_messages",
			Help:    "Messages that a writer published together, by stream; 1 is a publish by itself.",
			Buckets: []float64{1, 3, 8, 16, 32, 64, 128, 256, maxBatch},
		}, []string{"stream"}),
		waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "verifyd_writer_waiting_messages",
			Help: "Messages that a writer left waiting when it last took some, by stream.",
		}, []string{"stream"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "verifyd_jetstream_errors_total",
			Help: "What JetStream did not do, by stream, op and kind: conflict, a race that somebody " +
				"else has won; uncertain, no answer; unavailable; store_full.",
		}, []string{"stream", "op", "kind"}),
	}
}

// Measure shows the connection's measurements, with those of every writer made on it, in a registry; once
// for each.
func (c *Conn) Measure(r prometheus.Registerer) {
	gauge := func(name, help string, value func() float64) prometheus.GaugeFunc {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	one := func(holds bool) float64 {
		if holds {
			return 1
		}
		return 0
	}
	r.MustRegister(c.metrics.batches, c.metrics.waiting, c.metrics.errors,
		gauge("verifyd_nats_connected", "1 while connected to NATS, 0 while reconnecting.",
			func() float64 { return one(c.Connected()) }),
		gauge("verifyd_clock_skew_seconds", "How far this machine's clock is ahead of the store's time.",
			func() float64 { return c.Clock.Skew().Seconds() }),
		gauge("verifyd_store_failed", "1 since the embedded store failed to write to its disk, or lost what "+
			"it held: this process uses it no more.", func() float64 { return one(c.Noticed() != nil) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "verifyd_nats_reconnects_total", Help: "How often the connection to NATS came back.",
		}, func() float64 { return float64(c.NC.Stats().Reconnects) }),
	)
}

// kinds are the words for this package's kinds of failure. ErrNotFound is none.
var kinds = []struct {
	err  error
	word string
}{{ErrConflict, "conflict"}, {ErrUncertain, "uncertain"}, {ErrUnavailable, "unavailable"},
	{ErrStoreFull, "store_full"}}

// failed counts an error if it is a failure.
func (m *metrics) failed(stream, op string, err error) {
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			m.errors.WithLabelValues(stream, op, k.word).Inc()
			return
		}
	}
}
