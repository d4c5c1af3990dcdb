package timeline

import (
	"time"

	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
)

// EventName is the middle of an event's subject: one word of [a-z_].
type EventName string

// The events of a session; add new ones here.
const (
	EventSignIn EventName = "sign_in" // the user pressed Continue and was sent to Network
	// EventNetworkError: Network failed to give a verdict: Detail; the user may try again
	EventNetworkError EventName = "trouble"
	// EventNotSent: a try of Attempt failed before the claim: Tries, Class, Detail, Timing, Next
	EventNotSent EventName = "not_sent"
)

// The events of the user's way through the sign-in page, in addition to EventSignIn, which is its second
// step. Together they show where users drop off; who they are is in none of them.
const (
	EventOpened EventName = "opened" // a person's browser opened the page of a session that was pending
	// EventReturned: the browser came back from Network with an attempt that was not used before
	EventReturned EventName = "returned"
	EventFinished EventName = "finished" // the user was sent on to the page that shows the outcome
	// EventPlatform: Network vouched for the platform account, and the identity is still to be proven
	EventPlatform EventName = "platform"
	EventCode     EventName = "code" // Network vouched for the identity, and the user was shown a code
	// EventWrongCode: a code was entered that does not confirm the session; Detail: how many more are
	// accepted
	EventWrongCode EventName = "wrong_code"
)

// Event is something that happened to a session and that no promise depends on. It is for people: it may be
// missing after a crash.
type Event struct {
	Name    EventName   `json:"-"`
	Session sessions.ID `json:"-"`
	At      time.Time   `json:"at"` // now if zero

	// The following fields are set as the name requires.
	Network string        `json:"network,omitempty"` // id of the identity network
	Attempt int           `json:"attempt,omitzero"`
	Tries   int           `json:"tries,omitzero"` // at the attempt, with this one
	Class   failure.Class `json:"class,omitempty"`
	Detail  string        `json:"detail,omitempty"` // one sentence for people, without URL or secrets
	Address string        `json:"address,omitempty"`
	Timing  facts.Timing  `json:"timing,omitzero"`
	Next    time.Duration `json:"next,omitzero"` // the pause until the next try; zero if there is none

	// where the key of its session is, under which Detail and Address are stored
	SealedUnder sessions.KeyRef `json:"-"`
}

// Of returns the event as one of a session: Detail and Address, which show where the callback URL leads, are
// stored sealed under its key.
func (e Event) Of(s sessions.Session) Event {
	e.Session, e.SealedUnder = s.ID, s.SealedUnder
	return e
}
