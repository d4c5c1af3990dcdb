package facts

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"verifyd/sessions"
)

// ErrUnreadable is returned for what is stored on a fact's subject and is none: not a record, or one with a
// member that its version does not have. No build of verifyd has written it; whoever may send requests to
// the server can have an answer stored there. It is never interpreted, and since nothing can be written over
// it, it has a meaning of its own:
//
//	completion  The session has ended without an outcome: Expired, by UnreadableReason. No role wrote one,
//	            so nobody was shown any and no callback is sent; whoever completes the session is told
//	            ErrExpired. The integrator starts a new one.
//	claim       Somebody may have sent under it: the attempt ended as unknown, by failure.Unreadable. A
//	            dispatcher that meets it stores that. Only where that attempt was due, after the one before
//	            it or because somebody requested it: otherwise no role would have claimed it, and it says
//	            nothing until somebody asks for that attempt.
//	result      The same, and final: how the attempt ended cannot be stored.
//	resend      Nobody has asked. Nothing is sent on the strength of it, and that attempt can be asked for
//	            no more.
//	retry,      A hint that says no more than its subject does: the delivery is taken up, and the facts
//	schedule    decide.
//
// So there is no second POST, and what cannot be known is shown as unknown.
var ErrUnreadable = errors.New("no verifyd has written this")

// UnreadableError locates what is stored in the place of a fact or a hint and is none. It is ErrUnreadable
// to errors.Is.
type UnreadableError struct {
	Session  sessions.ID
	Subject  string
	Sequence uint64    // in its stream; the server's tools name messages so
	At       time.Time // when it was stored
	Cause    error
}

func (e *UnreadableError) Error() string {
	return fmt.Sprintf("what stands on %s (sequence %d) cannot be read: %v", e.Subject, e.Sequence, e.Cause)
}

// Unwrap returns the cause.
func (e *UnreadableError) Unwrap() error { return e.Cause }

// Kind is the kind of fact, or of hint, that belongs on the subject.
func (e *UnreadableError) Kind() string {
	kind, _, _ := strings.Cut(e.Subject, ".")
	return kind
}
