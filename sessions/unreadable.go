package sessions

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
)

// ErrUnreadable is returned for what is stored on a fact's subject and is none: not a record, or one with a
// member that its version does not have. No build of verifyd has written it; whoever may send requests to
// the server can have an answer stored there. It is never interpreted, and since nothing can be written over
// it, it has a meaning of its own:
//
//	completion  The session has ended without an outcome: Expired, by UnreadableReason. No role wrote one, so nobody was shown any and no
//	            callback is sent; whoever completes the session is told ErrExpired. The integrator starts a new one.
//	claim       Somebody may have sent under it: the attempt ended as unknown, by ClassUnreadable. A dispatcher that meets it stores that.
//	            Only where that attempt was due, after the one before it or by somebody's wish: otherwise no role would have claimed it,
//	            and it says nothing until somebody asks for that attempt.
//	result      The same, and final: how the attempt ended cannot be stored.
//	resend      Nobody has asked. Nothing is sent on the strength of it, and that attempt can be asked for no more.
//	retry,      A hint that says no more than its subject does: the delivery is taken up, and the facts decide.
//	schedule
//
// So there is no second POST, and what cannot be known is shown as unknown.
var ErrUnreadable = errors.New("no verifyd has written this")

// UnreadableError locates what is stored in the place of a fact or a hint and is none. It is ErrUnreadable
// to errors.Is.
type UnreadableError struct {
	Session  ID
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

// CheckUnreadable reports a message from a consumer that could not be read, and returns the
// *UnreadableError; any other error is returned unchanged.
func (st *Store) CheckUnreadable(m jetstream.Msg, err error) error {
	meta, merr := m.Metadata()
	if merr != nil {
		return err
	}
	return st.unreadable(m.Subject(), m.Headers(), meta.Sequence.Stream, meta.Timestamp, err)
}

// checkUnreadable is CheckUnreadable for a message that was read by its subject.
func (st *Store) checkUnreadable(m *jetstream.RawStreamMsg, err error) error {
	return st.unreadable(m.Subject, m.Header, m.Sequence, m.Time, err)
}

func (st *Store) unreadable(subject string, header nats.Header, sequence uint64, at time.Time,
	err error) error {
	if _, told := errors.AsType[*UnreadableError](err); told || !errors.Is(err, ErrUnreadable) {
		return err
	}
	e := &UnreadableError{
		Session: OfFact(subject), Subject: subject, Sequence: sequence, At: natsconf.StoredAt(header, at).
				UTC(), Cause: err,
	}
	st.metrics.unreadable.WithLabelValues(e.Kind()).Inc()
	if st.onUnreadable != nil {
		st.onUnreadable(e)
	}
	return e
}

// storedAt returns when an unreadable message was stored.
func storedAt(err error) (at time.Time, ok bool) {
	if e, found := errors.AsType[*UnreadableError](err); found {
		return e.At.Truncate(time.Millisecond), true
	}
	return time.Time{}, false
}

// endedUnreadable is the view of a session whose completion cannot be read and was stored at an instant.
func endedUnreadable(s Session, at time.Time) View {
	if at.Before(s.ExpiresAt) {
		s.ExpiresAt = at // from then on nobody could complete it
	}
	return View{
		Session: s, Outcome: Outcome{State: Expired, Reason: UnreadableReason}, Delivery: Delivery{
			State: DeliveryNone,
		},
	}
}

// unreadableClaim represents a claim that cannot be read.
func unreadableClaim(id ID, n int, at time.Time) Claim {
	return Claim{Session: id, Number: n, Unreadable: true, At: at}
}

// unreadableResult is the result of an attempt whose claim or result cannot be read.
func unreadableResult(id ID, n int, at time.Time) Result {
	return NewResult(id, n, VerdictUnknown, ClassUnreadable, "", at)
}

// attemptFacts reads the facts of one session's attempts, by number. What cannot be read is returned with
// its meaning.
type attemptFacts struct {
	claim           func(n int) (*Claim, error)  // nil: there is none
	result          func(n int) (*Result, error) // nil: there is none
	resendRequested func(n int) (bool, error)    // whether somebody asked for it
}

// attempts puts the attempts together. They end before an unreadable claim of an attempt that was not due:
// it reopens no delivery. So there are never more attempts than were due.
func (f attemptFacts) attempts() (attempts []Attempt, err error) {
	for n := 1; ; n++ {
		claim, err := f.claim(n)
		if err != nil || claim == nil {
			return attempts, err
		}
		if claim.Unreadable && !isDue(attempts) {
			if requested, err := f.resendRequested(n); err != nil || !requested {
				return attempts, err
			}
		}
		result, err := f.result(n)
		if err != nil {
			return nil, err
		}
		attempts = append(attempts, newAttempt(*claim, result))
	}
}

// newAttempt puts a claim and its result together; nil: there is none.
func newAttempt(c Claim, r *Result) Attempt {
	if r == nil && c.Unreadable {
		presumed := unreadableResult(c.Session, c.Number, c.At)
		return Attempt{Claim: c, Result: &presumed, Presumed: true}
	}
	return Attempt{Claim: c, Result: r}
}

// factKey is a subject of StreamCompletions, parsed.
type factKey struct {
	kind string // the subject's first word
	id   ID
	n    int // of the attempt; 0 for a completion, whose subject names none
}

// subject formats it.
func (p factKey) subject() string { return p.kind + "." + string(p.id) + "." + strconv.Itoa(p.n) }

// parseFactSubject parses a subject. It is not ok for one that no build uses, nor for another stream's,
// which a consumer of that stream may have been made to deliver here: what is stored there belongs to no
// session.
func parseFactSubject(subject string) (p factKey, ok bool) {
	parts := strings.Split(subject, ".")
	if len(parts) < 2 {
		return p, false
	}
	id, err := ParseID(parts[1])
	p = factKey{kind: parts[0], id: id}
	if err != nil || string(id) != parts[1] {
		return p, false
	}
	switch p.kind {
	case "completion":
		return p, len(parts) == 2
	case "claim", "result", "resend":
		if len(parts) != 3 {
			return p, false
		}
		p.n, err = strconv.Atoi(parts[2])
		return p, err == nil && p.n > 0 && strconv.Itoa(p.n) == parts[2]
	default:
		return p, false
	}
}
