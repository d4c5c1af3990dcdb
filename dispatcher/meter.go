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

// meter is the actor that measures what holds for the whole service: the backlog, and how long outcomes are
// kept. Every dispatcher process shows the same figures.
type meter struct {
	d       *shared
	backlog atomic.Pointer[fleet.Backlog] // the last measured
}

// String names the actor in the supervisor's log.
func (m *meter) String() string { return "dispatcher meter" }

// Serve measures until ctx ends. While JetStream does not answer, the last figures stay.
func (m *meter) Serve(ctx context.Context) error {
	return repeat(ctx, meterEvery, func(ctx context.Context) {
		m.measureOnce(ctx)
		m.d.readKeptFor(ctx)
	})
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

const (
	// rescheduleEvery is how often overdue schedules are looked for: a handful of requests each time.
	rescheduleEvery = 10 * time.Second
	// overdueBy is by how much a schedule may be late before it is stored again. JetStream puts a due message
	// on the stream within a second or two. But if it could not store the message, because the store was
	// full, it does not try again while it runs.
	overdueBy = 30 * time.Second
)

// rescheduler is the actor that reschedules what JetStream has forgotten: without it, such a delivery would
// wait for a restart of the server.
type rescheduler struct{ d *shared }

// String names the actor in the supervisor's log.
func (rs *rescheduler) String() string { return "dispatcher rescheduler" }

// Serve reschedules until ctx ends.
func (rs *rescheduler) Serve(ctx context.Context) error {
	return repeat(ctx, rescheduleEvery, rs.rescheduleOnce)
}

// rescheduleOnce stores overdue schedules again. A retry is a hint: one that comes twice changes nothing.
// Each keeps its instant, which has passed: none is put off.
func (rs *rescheduler) rescheduleOnce(ctx context.Context) {
	if rs.d.c.Conn.Clock.Judge(ctx) != nil {
		return // the clock's keeper logs why, or the meter that JetStream does not answer
	}
	overdue, err := rs.d.c.Sessions.Overdue(ctx, overdueBy)
	if err != nil {
		return // the meter logs that JetStream does not answer
	}
	for _, r := range overdue {
		if r.Since.IsZero() { // it could not be read
			r.At = rs.d.c.Now()
			c, err := rs.d.c.Sessions.Completion(ctx, r.Session)
			if errors.Is(err, natsconf.ErrUnavailable) {
				return
			}
			if r.Since = c.CompletedAt; err != nil {
				// there is nothing to deliver, or it is not for this build: the dispatcher that takes the
				// hint finds out
				r.Since = r.At
			}
		}
		if err := rs.d.c.Sessions.Schedule(ctx, r); err != nil {
			rs.d.c.Log.Warn().Err(err).Int("overdue", len(overdue)).
				Msg("overdue retries cannot be stored anew")
			return
		}
		rs.d.c.Log.Warn().Str("sid", string(r.Session)).Msg("a retry was overdue and is scheduled anew")
	}
}

// repeat calls do at once, and again each time that the interval has passed, until ctx ends.
func repeat(ctx context.Context, interval time.Duration, do func(context.Context)) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		do(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
