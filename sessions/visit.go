package sessions

import (
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The events of the user's way through the sign-in page, beside EventSignIn, which is its second step.
// Together they show where users drop off; who they are is in none of them.
const (
	EventOpened   EventName = "opened"   // a person's browser opened the page of a session that was pending
	EventReturned EventName = "returned" // the browser came back from Network with an attempt that was not used before
	EventFinished EventName = "finished" // the user was sent on to the page that shows the outcome
)

// Step puts a step of the user's way on the session's timeline, and counts it: each session once, and at
// e.Network each try. Like Emit it does not wait and promises nothing. EventOpened, which a reload repeats,
// is on the timeline at most once in two minutes, however many edges report it.
func (st *Store) Step(s Session, e Event) {
	e = e.Of(s)
	if e.Network != "" && e.Name != EventFinished { // how it finished is counted with the outcome
		st.countOf(s, Count(e.Name).Of(e.Network))
	}
	data, ok := st.encodeEvent(e)
	if !ok {
		return
	}
	msg := &nats.Msg{Subject: eventSubject(string(e.Name), s.ID), Data: data, Header: nats.Header{}}
	if e.Name == EventOpened {
		msg.Header.Set(jetstream.MsgIDHeader, string(e.Name)+"."+string(s.ID))
	}
	p := step{msg: msg, id: s.ID}
	if e.Name != EventNetworkError {
		p.count = func() { st.countOf(s, Count(e.Name)) }
	}
	if st.steps == nil || !st.steps.enqueue(p) {
		st.conn.EmitMsg(msg)
	}
}
