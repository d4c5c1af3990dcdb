package lists

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"verifyd/natsconf"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/records"
	"verifyd/sessions/timeline"
)

// maxEvents bounds how many events of one session are read. An honest session has a handful; a user who
// keeps pressing "Continue" adds one with each press.
const maxEvents = 512

// Timeline returns a session and all that is known of what happened to it, oldest first. An effect never
// precedes its cause, although its instant may be earlier if another machine's clock took it. The errors are
// those of Read.
func (st *Lists) Timeline(ctx context.Context, id sessions.ID) (facts.View, []timeline.Entry, error) {
	v, err := st.Read(ctx, id)
	if err != nil {
		return facts.View{}, nil, err
	}
	events, err := st.events(ctx, v.Session)
	if err != nil {
		return facts.View{}, nil, err
	}
	requested, err := st.resends(ctx, v)
	if err != nil {
		return facts.View{}, nil, err
	}
	return v, timeline.Entries(v, events, requested), nil
}

// resends reads who requested a view's attempts, by number.
func (st *Lists) resends(ctx context.Context, v facts.View) (map[int]*facts.Resend, error) {
	requested := map[int]*facts.Resend{}
	for n := 2; n <= len(v.Delivery.Attempts)+1; n++ {
		r, err := st.ResendOf(ctx, v.ID, n)
		if err != nil {
			return nil, err
		}
		if r != nil {
			requested[n] = r
		}
	}
	return requested, nil
}

// events reads a session's events from the leader. It leaves out those of a newer build.
func (st *Lists) events(ctx context.Context, s sessions.Session) ([]timeline.Event, error) {
	id := s.ID
	var events []timeline.Event
	for seq := uint64(1); len(events) < maxEvents; {
		m, err := st.Conn.Next(ctx, topology.StreamEvents, records.EventSubject("*", id), seq)
		if errors.Is(err, natsconf.ErrNotFound) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read the events of session %s: %w", id, err)
		}
		seq = m.Sequence + 1
		e, ok, err := st.DecodeEvent(ctx, s, timeline.EventName(strings.Split(m.Subject, ".")[1]), m.Data)
		if err != nil {
			return nil, err
		}
		if ok {
			events = append(events, e)
		}
	}
	return events, nil
}

// Explain adds why its delivery is waiting to a view whose delivery is due. Where that cannot be read, or no
// try was made yet, it adds nothing: no answer depends on it.
func (st *Lists) Explain(ctx context.Context, v *facts.View) {
	if v.Delivery.State != facts.DeliveryDue {
		return
	}
	if n := len(v.Delivery.Attempts); n > 0 {
		if r := v.Delivery.Attempts[n-1].Result; r != nil && !r.Next.IsZero() {
			v.Delivery.Waiting = &facts.Waiting{Class: r.Class, Detail: r.Detail, At: r.At, Next: r.Next}
		}
	}
	m, err := st.Conn.Last(ctx, topology.StreamEvents, records.EventSubject(string(timeline.EventNotSent),
		v.ID))
	if err != nil {
		return
	}
	e, ok, err := st.DecodeEvent(ctx, v.Session, timeline.EventNotSent, m.Data)
	if err == nil && ok && e.Attempt == len(v.Delivery.Attempts)+1 { // not of one that ended before a resend
		v.Delivery.Waiting = &facts.Waiting{
			Tries: e.Tries, Class: e.Class, Detail: e.Detail, At: e.At, Next: e.At.Add(e.Next),
		}
	}
}
