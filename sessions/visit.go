package sessions

// The events of the user's way through the sign-in page, beside EventSignIn, which is its second step. Together they show where users
// drop off; who they are is in none of them.
const (
	EventOpened   EventName = "opened"   // a person's browser opened the page of a session that was pending
	EventReturned EventName = "returned" // the browser came back from Network with an attempt that was not used before
	EventFinished EventName = "finished" // the user was sent on to the page that tells the outcome
)

// EmitOnce is Emit for an event that a reload repeats: the timeline has it once in two minutes at most, however many edges emit it.
func (st *Store) EmitOnce(e Event) {
	if data, ok := st.encodeEvent(e); ok {
		st.conn.EmitOnce(eventSubject(string(e.Name), e.Session), string(e.Name)+"."+string(e.Session), data)
	}
}
