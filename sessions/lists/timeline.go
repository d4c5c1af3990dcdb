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

// LastNotSent returns the last try of a session's callback that sent nothing. Its errors are
// natsconf.ErrNotFound, if no such try is known, and natsconf.ErrUnavailable.
func (st *Lists) LastNotSent(ctx context.Context, s sessions.Session) (timeline.Event, error) {
	m, err := st.Conn.Last(ctx, topology.StreamEvents, records.EventSubject(string(timeline.EventNotSent),
		s.ID))
	if err != nil {
		return timeline.Event{}, fmt.Errorf("read the last try of session %s: %w", s.ID, err)
	}
	e, ok, err := st.DecodeEvent(ctx, s, timeline.EventNotSent, m.Data)
	if err == nil && !ok {
		err = natsconf.ErrNotFound
	}
	if err != nil {
		return timeline.Event{}, fmt.Errorf("read the last try of session %s: %w", s.ID, err)
	}
	return e, nil
}
