package lists

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/records"
)

// maxBacklogSchedules is how many schedules are read to find the oldest delivery.
const maxBacklogSchedules = 2048

// Backlog counts the deliveries of the whole service that have not ended, by state.
type Backlog struct {
	Waiting   uint64 // not yet given to a dispatcher
	Given     uint64 // with a dispatcher, or in a short pause before the next try
	Scheduled uint64 // waiting as message schedules
	// Oldest is when the oldest of them became due; zero if there is none. If there are more than 2,048
	// schedules, it considers only those that were stored first.
	Oldest time.Time
}

// Backlog reads the backlog from the leaders. Its error is natsconf.ErrUnavailable.
func (st *Lists) Backlog(ctx context.Context) (Backlog, error) {
	var b Backlog
	for _, c := range topology.DispatcherConsumers() {
		if err := st.backlogOf(ctx, c, &b); err != nil {
			return Backlog{}, fmt.Errorf("measure the backlog: %w", err)
		}
	}
	msgs, all, err := st.Conn.Head(ctx, topology.StreamRetries, records.ScheduleSubject("*"),
		maxBacklogSchedules)
	if err != nil {
		return Backlog{}, fmt.Errorf("measure the backlog: %w", err)
	}
	b.Scheduled = all
	for _, m := range msgs {
		b.retry(st, m.Subject(), m.Data())
	}
	return b, nil
}

// Overdue returns the schedules that are overdue by more than a duration, among the 2,048 that were stored
// first. It includes those that cannot be read, of which only the session is known. Its error is
// natsconf.ErrUnavailable.
func (st *Lists) Overdue(ctx context.Context, by time.Duration) ([]facts.Retry, error) {
	msgs, _, err := st.Conn.Head(ctx, topology.StreamRetries, records.ScheduleSubject("*"),
		maxBacklogSchedules)
	if err != nil {
		return nil, fmt.Errorf("look for overdue retries: %w", err)
	}
	var overdue []facts.Retry
	for _, m := range msgs {
		r, err := st.DecodeRetry(m.Subject(), m.Data())
		if errors.Is(err, natsconf.ErrNewer) || r.Session == "" {
			continue // of a newer build, or of no session
		}
		if err != nil {
			_ = st.CheckUnreadable(m, err)
		}
		if st.Now().Sub(r.At) > by {
			overdue = append(overdue, r)
		}
	}
	return overdue, nil
}

// Hints are the messages that bring deliveries to a dispatcher.
type Hints struct {
	// ConsumerState is that of completions, and of requests to send one again.
	natsconf.ConsumerState
	// Retries holds what waits in a schedule, or has come due and was not dealt with.
	Retries map[sessions.ID]bool
}

// Hints reads the hints from the leaders. A message is dealt with only when its delivery has ended, or the
// next one is stored. So hints are read in the order in which one replaces another, and a delivery that has
// not ended is in what was read, whatever happens meanwhile. Its error is natsconf.ErrUnavailable.
func (st *Lists) Hints(ctx context.Context) (Hints, error) {
	h := Hints{Retries: map[sessions.ID]bool{}}
	var states []natsconf.ConsumerState
	for _, c := range topology.DispatcherConsumers() {
		state, err := st.Conn.ConsumerState(ctx, c.Stream, c.Config.Durable)
		if err != nil && !errors.Is(err, natsconf.ErrNotFound) { // the dispatcher creates it
			return Hints{}, fmt.Errorf("read the hints: %w", err)
		}
		states = append(states, state)
	}
	h.ConsumerState = states[0]
	read := func(subject string, from uint64) error {
		return st.Conn.Pages(ctx, topology.StreamRetries, subject, from, math.MaxUint64,
			func(msgs []jetstream.Msg) error {
				for _, m := range msgs {
					h.Retries[facts.OfFact(m.Subject())] = true
				}
				return nil
			})
	}
	err := read(records.ScheduleSubject("*"), 1)
	if err == nil {
		err = read(records.RetrySubject("*"), states[1].Floor+1)
	}
	if err != nil {
		return Hints{}, fmt.Errorf("read the hints: %w", err)
	}
	return h, nil
}

// backlogOf adds the backlog of one consumer. It reads the first message of each kind that is not
// acknowledged.
func (st *Lists) backlogOf(ctx context.Context, c topology.Consumer, b *Backlog) error {
	state, err := st.Conn.ConsumerState(ctx, c.Stream, c.Config.Durable)
	if errors.Is(err, natsconf.ErrNotFound) {
		return nil // the dispatcher creates it
	}
	if err != nil {
		return err
	}
	b.Waiting, b.Given = b.Waiting+state.Waiting, b.Given+state.Given
	if state.Waiting+state.Given == 0 {
		return nil
	}
	for _, subject := range c.Config.FilterSubjects {
		m, err := st.Conn.Next(ctx, c.Stream, subject, state.Floor+1)
		switch {
		case errors.Is(err, natsconf.ErrNotFound):
		case err != nil:
			return err
		case c.Stream == topology.StreamRetries:
			b.retry(st, m.Subject, m.Data)
		default:
			b.since(natsconf.StoredAt(m.Header, m.Time))
		}
	}
	return nil
}

// retry reads a hint. A hint that cannot be read must not hide the others.
func (b *Backlog) retry(st *Lists, subject string, data []byte) {
	if r, err := st.DecodeRetry(subject, data); err == nil {
		b.since(r.Since)
	}
}

func (b *Backlog) since(t time.Time) {
	if b.Oldest.IsZero() || t.Before(b.Oldest) {
		b.Oldest = t
	}
}
