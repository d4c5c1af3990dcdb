package facts

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"verifyd/sessions"
)

// ErrUnreadable is returned for a message on a fact's subject that is not a fact: it is not a record, or has
// a member that its version does not have. No build of verifyd has written it; anyone who may send requests
// to the server can make it store an answer there. The message is never interpreted. Since nothing can be
// written over it, it has a meaning of its own:
//
//	completion  The session has ended without an outcome: Expired, by UnreadableReason. No role wrote one,
//	            so no outcome was shown and no callback is sent. A caller that completes the session gets
//	            ErrExpired. The integrator starts a new one.
//	claim       A process may have sent under it: the attempt ended as unknown, by failure.Unreadable. A
//	            dispatcher that meets it stores that. This holds only if that attempt was due, after the
//	            one before it or because somebody requested it. Otherwise no role would have claimed it,
//	            and it means nothing until somebody requests that attempt.
//	result      The same, and final: how the attempt ended cannot be stored.
//	resend      Nobody has requested the attempt. Nothing is sent because of it, and that attempt can no
//	            longer be requested.
//	retry,      A hint that says no more than its subject: the delivery is taken up, and the facts decide.
//	schedule
//
// So there is no second POST, and an attempt whose end cannot be known is shown as unknown.
var ErrUnreadable = errors.New("no verifyd has written this")

// UnreadableError locates a message that is stored in the place of a fact or a hint and is neither. It is
// ErrUnreadable to errors.Is.
type UnreadableError struct {
	Session  sessions.ID
	Subject  string
	Sequence uint64    // in its stream; the server's tools name messages by it
	At       time.Time // when it was stored
	Cause    error
}

func (e *UnreadableError) Error() string {
	return fmt.Sprintf("the message on %s (sequence %d) cannot be read: %v", e.Subject, e.Sequence, e.Cause)
}

// Unwrap returns the cause.
func (e *UnreadableError) Unwrap() error { return e.Cause }

// Kind is the kind of fact, or of hint, that belongs on the subject.
func (e *UnreadableError) Kind() string {
	kind, _, _ := strings.Cut(e.Subject, ".")
	return kind
}
