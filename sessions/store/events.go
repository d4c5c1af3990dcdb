package store

import (
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/sessions"
	"verifyd/sessions/records"
	"verifyd/sessions/stats"
	"verifyd/sessions/timeline"
)

// Events puts events on sessions' timelines; no promise depends on them.
type Events struct {
	*records.Reader

	meter *stats.Meter
	steps *Steps
}

// Emit puts an event on the session's timeline. It does not wait and promises nothing; an event whose name
// is not one word is dropped.
func (st *Events) Emit(e timeline.Event) {
	if data, ok := st.EncodeEvent(e); ok {
		st.Conn.Emit(records.EventSubject(string(e.Name), e.Session), data)
	}
}

// Step puts a step of the user's way on the session's timeline, and counts it: once for each session, and at
// e.Network for each try. Like Emit it does not wait and promises nothing. EventOpened, which a reload
// repeats, is on the timeline at most once in two minutes, however many edges report it.
func (st *Events) Step(s sessions.Session, e timeline.Event) {
	e = e.Of(s)
	if e.Network != "" && e.Name != timeline.EventFinished { // how it finished is counted with the outcome
		st.meter.CountOf(s, stats.Count(e.Name).Of(e.Network))
	}
	data, ok := st.EncodeEvent(e)
	if !ok {
		return
	}
	msg := &nats.Msg{Subject: records.EventSubject(string(e.Name), s.ID), Data: data, Header: nats.Header{}}
	if e.Name == timeline.EventOpened {
		msg.Header.Set(jetstream.MsgIDHeader, string(e.Name)+"."+string(s.ID))
	}
	p := step{msg: msg, id: s.ID}
	if e.Name != timeline.EventNetworkError {
		p.count = func() { st.meter.CountOf(s, stats.Count(e.Name)) }
	}
	if st.steps == nil || !st.steps.enqueue(p) {
		st.Conn.EmitMsg(msg)
	}
}
