package dispatcher

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"verifyd/natsconf"
	"verifyd/natsconf/fleet"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/lists"
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

// reschedule reschedules what JetStream has forgotten, until ctx ends: without it, such a delivery would wait
// for a restart of the server.
func (d *shared) reschedule(ctx context.Context) error {
	return repeat(ctx, rescheduleEvery, d.rescheduleOnce)
}

// rescheduleOnce stores overdue schedules again. A retry is a hint: one that comes twice changes nothing.
// Each keeps its instant, which has passed: none is put off.
func (d *shared) rescheduleOnce(ctx context.Context) {
	if d.c.Conn.Clock.Judge(ctx) != nil {
		return // the clock's keeper logs why, or the meter that JetStream does not answer
	}
	overdue, err := d.c.Sessions.Overdue(ctx, overdueBy)
	if err != nil {
		return // the meter logs that JetStream does not answer
	}
	for _, r := range overdue {
		if r.Since.IsZero() { // it could not be read
			r.At = d.c.Now()
			c, err := d.c.Sessions.Completion(ctx, r.Session)
			if errors.Is(err, natsconf.ErrUnavailable) {
				return
			}
			if r.Since = c.CompletedAt; err != nil {
				// there is nothing to deliver, or it is not for this build: the dispatcher that takes the
				// hint finds out
				r.Since = r.At
			}
		}
		if err := d.c.Sessions.Schedule(ctx, r); err != nil {
			d.c.Log.Warn().Err(err).Int("overdue", len(overdue)).
				Msg("overdue retries cannot be stored anew")
			return
		}
		d.c.Log.Warn().Str("sid", string(r.Session)).Msg("a retry was overdue and is scheduled anew")
	}
}

const (
	// confirmSooner is how many times sooner than usual the reconciler looks again after it has found
	// something that may be stray.
	confirmSooner = 10
	// restorer is the owner of claims that are made in the place of one that may be lost.
	restorer = "reconciliation"
)

// reconciler is the actor that finds stray deliveries, and hands them in. A delivery is stray if it has not
// ended, and no message brings it to a dispatcher: neither its completion or the request to send it again,
// which is acknowledged, nor a retry, scheduled or come due. It counts as stray when two looks in a row have
// found it so, and the facts, read once more, show that it has not ended.
//
// Its message was acknowledged, which a dispatcher does when the delivery has ended, or a schedule is stored.
// So either the schedule was lost, or the facts by which it ended:
//
//   - If an attempt is claimed, it is handed in, and whoever takes it settles that attempt.
//   - If the store keeps every fact that it has confirmed, the schedule was lost, since nothing is sent under
//     a claim that is not confirmed. It is handed in, and the facts decide.
//   - If the store may lose them (Config.LosesFacts), so may be the claim of an attempt that was sent. It is
//     claimed once more, by an owner that sends nothing, and handed in; the attempt ends as unknown.
//   - If its last result is one that the policy sends again, a lost claim would be of a repeat that was
//     chosen. It is handed in.
//
// A message above the consumer's floor may be acknowledged or not, which JetStream does not report. But if
// more deliveries have none but such a message than are unacknowledged, some are stray, and all of these are
// handed in: a second hint changes nothing. No claim is made for them. A power cut leaves none of them, since
// after it everything above the floor is given again.
//
// Each dispatcher has a reconciler. It reads all facts once, and then only new ones, and holds in memory the
// deliveries that have not ended. It decides by no clock.
type reconciler struct {
	d        *shared
	from     uint64                 // the first sequence of the facts that were not read yet
	open     map[sessions.ID]uint64 // deliveries, and the sequence of the message that brings each
	suspects map[sessions.ID]bool   // what the last look has found
	strays   atomic.Pointer[fleet.Strays]
}

// String names the actor in the supervisor's log.
func (rc *reconciler) String() string { return "dispatcher reconciler" }

// Serve looks at once, and then again and again, until ctx ends. Dispatchers that were started together do
// not look at the same time for long.
func (rc *reconciler) Serve(ctx context.Context) error {
	rc.from, rc.open, rc.suspects = 1, map[sessions.ID]uint64{}, nil
	for {
		if err := rc.lookOnce(ctx); err != nil && ctx.Err() == nil {
			rc.d.c.Log.Warn().Err(err).Msg("deliveries that no dispatcher has cannot be looked for")
		}
		pause := rc.d.c.Reconcile
		if len(rc.suspects) > 0 {
			pause /= confirmSooner
		}
		pause -= time.Duration(rc.d.c.Random() * float64(pause) / 2)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// lookOnce hands in what this look and the last have found to be stray. The hints are read first: what ends
// or is completed meanwhile is in the facts.
func (rc *reconciler) lookOnce(ctx context.Context) error {
	hints, err := rc.d.c.Sessions.Hints(ctx)
	if err != nil {
		return err
	}
	if rc.from, err = rc.d.c.Sessions.Follow(ctx, rc.from, rc.open); err != nil {
		return err
	}
	before := rc.suspects
	rc.suspects = map[sessions.ID]bool{}
	stray, hidden, among := straysOf(rc.open, hints)
	for i, id := range slices.Concat(stray, among) {
		certain := i < len(stray)
		if !before[id] {
			rc.suspects[id] = true
			continue
		}
		did, err := rc.handIn(ctx, id, certain)
		if err != nil {
			rc.suspects = before // the next look goes on
			return err
		}
		if did && (certain || hidden > 0) {
			rc.report(id)
		}
		if did && !certain {
			hidden--
		}
	}
	return nil
}

// straysOf returns the deliveries that no message brings to a dispatcher, and those among which a number of
// others are hidden.
func straysOf(open map[sessions.ID]uint64, hints lists.Hints) (stray []sessions.ID, hidden int,
	among []sessions.ID) {
	for id, sequence := range open {
		switch {
		case hints.Retries[id]:
		case sequence <= hints.Floor:
			stray = append(stray, id)
		case sequence <= hints.Delivered:
			among = append(among, id)
		}
	}
	if hidden = len(among) - int(hints.Given); hidden <= 0 { //nolint:gosec // a count
		return stray, 0, nil
	}
	return stray, hidden, among
}

// handIn schedules a delivery for now, unless it has ended or left the store. Only one that is certain to be
// stray may have lost a claim. Its error is natsconf.ErrUnavailable.
func (rc *reconciler) handIn(ctx context.Context, id sessions.ID, certain bool) (did bool, err error) {
	c := rc.d.c
	v, err := c.Sessions.Read(ctx, id)
	if errors.Is(err, sessions.ErrNotFound) || err == nil && !v.Delivery.Open() {
		delete(rc.open, id)
		return false, nil
	}
	if err == nil && certain && mayHaveSent(v.Delivery, c.LosesFacts) {
		number := len(v.Delivery.Attempts) + 1
		err = c.Sessions.Claim(ctx, facts.NewClaim(id, number, restorer, rc.d.now(), 0, 0))
		if errors.Is(err, facts.ErrClaimed) {
			err = nil
		}
	}
	if err == nil {
		// An instant that has passed: that of a process whose clock is ahead would put it off.
		err = c.Sessions.Schedule(ctx, facts.Retry{Session: id, Since: v.CompletedAt, At: v.CompletedAt})
	}
	if errors.Is(err, natsconf.ErrUnavailable) {
		return false, err
	}
	if err != nil {
		c.Log.Warn().Err(err).Str("sid", string(id)).
			Msg("no dispatcher has a delivery, and it cannot be handed in")
	}
	return err == nil, nil
}

// report records that a delivery was handed in.
func (rc *reconciler) report(id sessions.ID) {
	rc.d.c.Log.Warn().Str("sid", string(id)).Msg("no dispatcher had a delivery; it is handed in again")
	rc.d.metrics.strays.Inc()
	strays := fleet.Strays{Found: 1, Last: rc.d.now(), Session: string(id)}
	if before := rc.strays.Load(); before != nil {
		strays.Found += before.Found
	}
	rc.strays.Store(&strays)
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
