package dispatcher

import (
	"context"
	"time"
)

// meterEvery is how often the backlog is asked for: a handful of requests each time.
const meterEvery = 10 * time.Second

// meter is the actor that measures the whole service's backlog. Every dispatcher process shows the same figures.
type meter struct{ d *Dispatcher }

// String names the actor in the supervisor's log.
func (m *meter) String() string { return "dispatcher meter" }

// Serve measures until ctx ends. While JetStream does not answer, the last figures stand.
func (m *meter) Serve(ctx context.Context) error {
	tick := time.NewTicker(meterEvery)
	defer tick.Stop()
	for {
		m.readOnce(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (m *meter) readOnce(ctx context.Context) {
	b, err := m.d.c.Sessions.Backlog(ctx)
	if err != nil {
		if ctx.Err() == nil {
			m.d.c.Log.Warn().Err(err).Msg("the backlog cannot be measured")
		}
		return
	}
	backlog := m.d.metrics.backlog
	backlog.WithLabelValues("waiting").Set(float64(b.Waiting))
	backlog.WithLabelValues("given").Set(float64(b.Given))
	backlog.WithLabelValues("scheduled").Set(float64(b.Scheduled))
	age := time.Duration(0)
	if !b.Oldest.IsZero() {
		age = max(m.d.c.Now().Sub(b.Oldest), 0)
	}
	m.d.metrics.oldest.Set(age.Seconds())
}
