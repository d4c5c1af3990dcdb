package dispatcher

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"verifyd/natsconf"
	"verifyd/natsconf/fleet"
)

// meterEvery is how often the backlog is measured: a handful of requests each time.
const meterEvery = 10 * time.Second

// overdueBy is by how much a schedule may be late before it is stored again. JetStream puts a due message on
// the stream within a second or two. But if it could not store the message, because the store was full, it
// does not try again while it runs.
const overdueBy = 30 * time.Second

// meter is the actor that measures the whole service's backlog, and reschedules what JetStream has
// forgotten. Every dispatcher process shows the same figures.
type meter struct {
	d       *shared
	backlog atomic.Pointer[fleet.Backlog] // the last measured
}

// String names the actor in the supervisor's log.
func (m *meter) String() string { return "dispatcher meter" }

// Serve measures until ctx ends. While JetStream does not answer, the last figures stay.
func (m *meter) Serve(ctx context.Context) error {
	tick := time.NewTicker(meterEvery)
	defer tick.Stop()
	for {
		m.measureOnce(ctx)
		m.rescheduleOnce(ctx)
		m.d.readKeptFor(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// rescheduleOnce stores overdue schedules again. A retry is a hint: one that comes twice changes nothing.
func (m *meter) rescheduleOnce(ctx context.Context) {
	overdue, err := m.d.c.Sessions.Overdue(ctx, overdueBy)
	if err != nil {
		return // measureOnce logs the error
	}
	for _, r := range overdue {
		r.At = m.d.c.Now()
		if r.Since.IsZero() { // it could not be read
			c, err := m.d.c.Sessions.Completion(ctx, r.Session)
			if errors.Is(err, natsconf.ErrUnavailable) {
				return
			}
			if r.Since = c.CompletedAt; err != nil {
				// there is nothing to deliver, or it is not for this build: the dispatcher that takes the
				// hint finds out
				r.Since = r.At
			}
		}
		if err := m.d.c.Sessions.Schedule(ctx, r); err != nil {
			m.d.c.Log.Warn().Err(err).Int("overdue", len(overdue)).
				Msg("overdue retries cannot be stored anew")
			return
		}
		m.d.c.Log.Warn().Str("sid", string(r.Session)).Msg("a retry was overdue and is scheduled anew")
	}
}

func (m *meter) measureOnce(ctx context.Context) {
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
	m.backlog.Store(&fleet.Backlog{
		At: m.d.now(), Waiting: b.Waiting, Given: b.Given, Scheduled: b.Scheduled, Oldest: b.Oldest,
	})
}
