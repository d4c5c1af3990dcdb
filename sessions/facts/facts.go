// Package facts is what is known of a session's delivery: the facts themselves (claim, result, resend), and
// what follows from them (the attempts, the state of the delivery). It reads nothing: a caller that has read
// facts asks it what they mean. A fact that cannot be read has the meaning that ErrUnreadable defines.
package facts

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"verifyd/sessions"
	"verifyd/sessions/failure"
)

// Claim is the fact "worker W is about to send attempt N". It is the fence of the single POST: written once,
// before the first byte, by the process that sends; a process that does not own it never sends.
type Claim struct {
	Session sessions.ID `json:"-"`
	Number  int         `json:"n"`      // the attempt, from 1
	Worker  string      `json:"worker"` // the process that claims, for people
	// GiveUp marks a claim that is made in order to end the delivery as undeliverable: its owner sends
	// nothing, and no other process can send any more.
	GiveUp bool      `json:"give_up,omitzero"`
	At     time.Time `json:"at"`
	// Deadline is the last instant at which the owner may begin to write. An owner that finds it passed
	// releases the claim.
	Deadline time.Time `json:"deadline"`
	// SettleAfter is the instant from which anyone may settle an open claim: Deadline plus a whole attempt
	// and a margin.
	SettleAfter time.Time `json:"settle_after"`
	// Unreadable marks a message that is stored in a claim's place and is not a claim (ErrUnreadable). Then
	// only At is set, to when it was stored.
	Unreadable bool `json:"-"`
}

// NewClaim returns the claim of an attempt. Its owner may begin to write until begin has passed. Anyone may
// settle it when settle has passed after that: how long an attempt may take, and a margin. If nothing is to
// be sent, begin is 0.
func NewClaim(id sessions.ID, number int, worker string, at time.Time, begin, settle time.Duration) Claim {
	deadline := at.Add(begin)
	return Claim{
		Session: id, Number: number, Worker: worker, At: at, Deadline: deadline,
		SettleAfter: deadline.Add(settle),
	}
}

// Resend is the fact "attempt N was requested", after the attempts before it had ended.
type Resend struct {
	Session sessions.ID `json:"-"`
	Number  int         `json:"n"`  // the attempt that is requested, from 2
	By      string      `json:"by"` // who requested it, for people: a key's id, or "operator"
	At      time.Time   `json:"at"`
}

// Verdict is how one attempt ended.
type Verdict string

// The verdicts of a result. VerdictReleased leaves the delivery due; the others end it, unless the result
// names the next attempt (Result.Next).
const (
	VerdictDelivered     Verdict = "delivered"
	VerdictRejected      Verdict = "rejected"
	VerdictUnknown       Verdict = "unknown"
	VerdictUndeliverable Verdict = "undeliverable"
	VerdictReleased      Verdict = "released" // claimed, but not one byte was written: attempt N+1 may follow
)

// Timing holds how long each step of an attempt took; zero if the step did not happen.
type Timing struct {
	DNS     time.Duration `json:"dns,omitzero"`
	Connect time.Duration `json:"connect,omitzero"`
	TLS     time.Duration `json:"tls,omitzero"`
	// from the write to the first byte of the status line
	FirstByte time.Duration `json:"first_byte,omitzero"`
	Total     time.Duration `json:"total,omitzero"`
}

// Dated returns the claim as it is judged by when the server stored it: nobody may settle it before its owner
// has had its time since then, whatever the owner believed that the time was.
func (c Claim) Dated(stored time.Time) Claim {
	life := c.SettleAfter.Sub(c.At)
	if after := stored.Add(life); !c.At.IsZero() && life > 0 && after.After(c.SettleAfter) {
		c.SettleAfter = after.UTC()
	}
	return c
}

// Result is the fact "attempt N ended so". Written once, by the claim's owner or, after Claim.SettleAfter, by
// any process that sees it.
type Result struct {
	Session sessions.ID   `json:"-"`
	Number  int           `json:"n"`
	Verdict Verdict       `json:"verdict"`
	Class   failure.Class `json:"class,omitempty"`
	Status  int           `json:"status,omitzero"` // the receiver's final status; 0 if none was read
	// one sentence for people, without URL or secrets; sealed in storage, like the next fields (Of)
	Detail  string `json:"detail,omitempty"`
	Address string `json:"address,omitempty"` // the address dialled, ip:port
	// the first 1 KiB of the answer's body; the code that shows it escapes it
	Answer string `json:"answer,omitempty"`
	Timing Timing `json:"timing,omitzero"`
	// Next is when the next attempt is due, if the policy sends such a result again; zero if the result is
	// final.
	Next time.Time `json:"next,omitzero"`
	By   string    `json:"by"` // the worker that wrote this fact
	At   time.Time `json:"at"`

	// where the key of its session is, under which the receiver's answer is stored; and that answer, still
	// sealed
	SealedUnder   sessions.KeyRef `json:"-"`
	SealedDetails string          `json:"-"`
}

// NewResult returns the result of an attempt. The sender sets the receiver's answer and how long it took.
func NewResult(id sessions.ID, number int, verdict Verdict, class failure.Class, by string,
	at time.Time) Result {
	return Result{Session: id, Number: number, Verdict: verdict, Class: class, By: by, At: at}
}

// Of returns the result as one of a session: the receiver's answer is stored sealed under the session's key,
// as the callback URL is.
func (r Result) Of(s sessions.Session) Result {
	r.SealedUnder = s.SealedUnder
	return r
}

// Retry is the hint "process this delivery again at At". The facts decide what happens then: a retry that
// arrives twice, or too late, changes nothing.
type Retry struct {
	Session sessions.ID `json:"-"`
	// the attempt that somebody requested, for people; 0: the delivery of the completion itself
	RequestedAttempt int `json:"asked,omitzero"`
	Tries            int `json:"tries"` // how often it was taken up before
	// since when it is to be sent: the completion, or the request to send it again
	Since time.Time `json:"since"`
	At    time.Time `json:"at"`
}

// The errors of a delivery.
var (
	// ErrClaimed: another owner holds the claim; the caller that gets this error never sends.
	ErrClaimed = errors.New("another owner holds the claim")
	// ErrDeliveryOpen: the delivery has not ended, so that nothing can be sent again.
	ErrDeliveryOpen = errors.New("the delivery is not at an end yet")
	// ErrResentOften: one more attempt was requested as often as is possible.
	ErrResentOften = errors.New("the callback was sent again 100 times, which is as often as is possible")
	// ErrNoDelivery: the session has no outcome that is sent.
	ErrNoDelivery = errors.New("the session has no outcome that is sent")
	// ErrHasResult: the attempt has a result already; the existing result is returned with this error.
	ErrHasResult = errors.New("the attempt has a result already")
)

// Key is a subject of StreamCompletions, parsed.
type Key struct {
	Kind string // the subject's first word
	ID   sessions.ID
	N    int // of the attempt; 0 for a completion, whose subject names none
}

// Subject formats it.
func (p Key) Subject() string { return p.Kind + "." + string(p.ID) + "." + strconv.Itoa(p.N) }

// ParseSubject parses a subject. It is not ok for a subject that no build uses. Nor is it for one of another
// stream, which somebody may have made a consumer deliver here: a message stored there belongs to no session.
func ParseSubject(subject string) (p Key, ok bool) {
	parts := strings.Split(subject, ".")
	if len(parts) < 2 {
		return p, false
	}
	id, err := sessions.ParseID(parts[1])
	p = Key{Kind: parts[0], ID: id}
	if err != nil || string(id) != parts[1] {
		return p, false
	}
	switch p.Kind {
	case "completion":
		return p, len(parts) == 2
	case "claim", "result", "resend":
		if len(parts) != 3 {
			return p, false
		}
		p.N, err = strconv.Atoi(parts[2])
		return p, err == nil && p.N > 0 && strconv.Itoa(p.N) == parts[2]
	default:
		return p, false
	}
}

// OfFact returns the session that a fact is about, from its subject.
func OfFact(subject string) sessions.ID {
	_, rest, _ := strings.Cut(subject, ".")
	name, _, _ := strings.Cut(rest, ".")
	return sessions.ID(name)
}

// OfEvent returns the session that an event is about, from its subject.
func OfEvent(subject string) sessions.ID {
	return sessions.ID(subject[strings.LastIndexByte(subject, '.')+1:])
}
