package facts

import (
	"errors"
	"slices"
	"time"

	"verifyd/sessions"
	"verifyd/sessions/failure"
	"verifyd/sessions/proof"
)

// View is everything that can be read about a session.
type View struct {
	sessions.Session
	sessions.Outcome
	CompletedAt time.Time // zero while pending and when expired
	Delivery    Delivery
	// Progress is what is proven so far, for a session that is not completed and asks for more than
	// proof.Link
	Progress proof.Progress
}

// DeliveryState is the state of the single POST.
type DeliveryState string

// The states of a delivery (package dispatcher moves them).
const (
	DeliveryNone      DeliveryState = "none"      // no outcome yet, or one that sends no callback
	DeliveryDue       DeliveryState = "due"       // waiting for its first or next attempt
	DeliveryClaimed   DeliveryState = "claimed"   // a worker is sending
	DeliveryDelivered DeliveryState = "delivered" // a 2xx status line was read
	DeliveryRejected  DeliveryState = "rejected"  // another final status line was read
	DeliveryUnknown   DeliveryState = "unknown"   // bytes left and no status line came back
	// DeliveryUndeliverable: provably nothing was sent until the retry deadline passed
	DeliveryUndeliverable DeliveryState = "undeliverable"
)

// Delivery is what is known about a session's callback.
type Delivery struct {
	State    DeliveryState
	Attempts []Attempt // by number, first is 1
	Waiting  *Waiting  // why it is due still, where the reader asked for that (lists.Lists.Explain)
}

// Waiting is why a delivery that is due was not sent yet.
type Waiting struct {
	// Tries is how many tries at the next attempt sent nothing. It is 0 if the last attempt was sent and the
	// policy sends it again, or if the dispatcher is of a build that did not store it.
	Tries  int
	Class  failure.Class // what failed last
	Detail string        // one sentence for people; may be empty
	At     time.Time     // when it failed
	Next   time.Time     // when it is tried next
}

// Attempt is one claim and, if it has ended, its result.
type Attempt struct {
	Claim  Claim
	Result *Result // nil while open
	// Presumed is set if the result is not a fact yet, but the meaning of an unreadable claim.
	Presumed bool
}

// NewDelivery returns the delivery of an outcome, from its facts. requested is called if the delivery has
// ended, and reports whether one more attempt was requested.
func NewDelivery(o sessions.Outcome, attempts []Attempt, requested func(n int) (bool, error)) (Delivery,
	error) {
	d := Delivery{State: StateOfDelivery(o, attempts), Attempts: attempts}
	if d.Open() || len(attempts) == 0 {
		return d, nil
	}
	again, err := requested(len(attempts) + 1)
	if again {
		d.State = DeliveryDue
	}
	return d, err
}

// Open reports whether the delivery has not ended yet.
func (d Delivery) Open() bool { return d.State == DeliveryDue || d.State == DeliveryClaimed }

// Unfinished returns the attempt that is claimed or, if none is, due, of a delivery that has not ended; 0: it
// has. A presumed result is no end: a dispatcher stores it.
func (d Delivery) Unfinished() (number int) {
	n := len(d.Attempts)
	switch {
	case n > 0 && d.Attempts[n-1].Presumed, d.State == DeliveryClaimed:
		return n
	case d.State == DeliveryDue:
		return n + 1
	default:
		return 0
	}
}

// Again returns the attempt that may be requested after the delivery has ended. Its errors are ErrNoDelivery
// and ErrDeliveryOpen.
func (d Delivery) Again() (number int, err error) {
	switch {
	case d.State == DeliveryNone:
		return 0, ErrNoDelivery
	case d.Open():
		return 0, ErrDeliveryOpen
	}
	return len(d.Attempts) + 1, nil
}

// StateOfDelivery derives the state of a delivery from its facts.
func StateOfDelivery(o sessions.Outcome, attempts []Attempt) DeliveryState {
	if o.State != sessions.Verified && o.State != sessions.Failed {
		return DeliveryNone
	}
	if isDue(attempts) {
		return DeliveryDue
	}
	last := attempts[len(attempts)-1]
	if last.Result == nil {
		return DeliveryClaimed
	}
	switch last.Result.Verdict {
	case VerdictDelivered:
		return DeliveryDelivered
	case VerdictRejected:
		return DeliveryRejected
	case VerdictUndeliverable:
		return DeliveryUndeliverable
	case VerdictReleased:
		return DeliveryDue
	case VerdictUnknown:
		return DeliveryUnknown
	default:
		return DeliveryUnknown // a verdict of a newer build: final, and this build cannot judge it
	}
}

// isDue reports whether one more attempt follows, without a resend being requested.
func isDue(attempts []Attempt) bool {
	if len(attempts) == 0 {
		return true
	}
	last := attempts[len(attempts)-1].Result
	return last != nil && last.LeavesDue()
}

// LeavesDue reports whether another attempt follows: nothing was sent, or the policy sends it again.
func (r Result) LeavesDue() bool { return r.Verdict == VerdictReleased || !r.Next.IsZero() }

// AttemptFacts reads the facts of one session's attempts, by number. A fact that cannot be read is returned
// with its meaning.
type AttemptFacts struct {
	Claim           func(n int) (*Claim, error)  // nil: there is none
	Result          func(n int) (*Result, error) // nil: there is none
	ResendRequested func(n int) (bool, error)    // whether somebody asked for it
}

// Attempts assembles the attempts. They end before an unreadable claim of an attempt that was not due: it
// reopens no delivery. So there are never more attempts than were due.
func (f AttemptFacts) Attempts() (attempts []Attempt, err error) {
	for n := 1; ; n++ {
		claim, err := f.Claim(n)
		if err != nil || claim == nil {
			return attempts, err
		}
		if last := len(attempts) - 1; last >= 0 && attempts[last].Result == nil {
			// Its result has come since it was looked for: no process claims the next attempt before that.
			result, err := f.Result(n - 1)
			if err != nil {
				return nil, err
			}
			attempts[last] = attempts[last].Claim.Attempt(result)
		}
		if claim.Unreadable && !isDue(attempts) {
			if requested, err := f.ResendRequested(n); err != nil || !requested {
				return attempts, err
			}
		}
		result, err := f.Result(n)
		if err != nil {
			return nil, err
		}
		attempts = append(attempts, claim.Attempt(result))
	}
}

// AfterLoss returns a delivery as it is to be after facts of it may have been lost, and the attempts that
// come to be closed for that, by number: the caller gives each the claim and the result, VerdictUnknown, that
// it lacks. These are the attempts up to the last of which a fact is left, and the next one if it would be
// due: it may have been made.
func (f AttemptFacts) AfterLoss(o sessions.Outcome, last int) (d Delivery, closed []int, err error) {
	if d.State = StateOfDelivery(o, nil); d.State == DeliveryNone {
		return d, nil, nil
	}
	after := AttemptFacts{
		Claim: func(n int) (*Claim, error) {
			c, err := f.Claim(n)
			if c == nil && err == nil && slices.Contains(closed, n) {
				c = &Claim{Number: n}
			}
			return c, err
		},
		Result: func(n int) (*Result, error) {
			r, err := f.Result(n)
			if r == nil && err == nil && slices.Contains(closed, n) {
				r = &Result{Number: n, Verdict: VerdictUnknown}
			}
			return r, err
		},
		ResendRequested: f.ResendRequested,
	}
	for n := 1; n <= last; n++ {
		c, cerr := f.Claim(n)
		r, rerr := f.Result(n)
		if err := errors.Join(cerr, rerr); err != nil {
			return d, nil, err
		}
		if c == nil || r == nil {
			closed = append(closed, n)
		}
	}
	for {
		if d.Attempts, err = after.Attempts(); err == nil {
			d, err = NewDelivery(o, d.Attempts, f.ResendRequested)
		}
		n := d.Unfinished()
		if err != nil || n == 0 {
			return d, closed, err
		}
		closed = append(closed, n)
	}
}

// Attempt returns the attempt of a claim and its result; nil: there is none.
func (c Claim) Attempt(r *Result) Attempt {
	if r == nil && c.Unreadable {
		presumed := UnreadableResult(c.Session, c.Number, c.At)
		return Attempt{Claim: c, Result: &presumed, Presumed: true}
	}
	return Attempt{Claim: c, Result: r}
}

// UnreadableClaim represents a claim that cannot be read.
func UnreadableClaim(id sessions.ID, n int, at time.Time) Claim {
	return Claim{Session: id, Number: n, Unreadable: true, At: at}
}

// UnreadableResult is the result of an attempt whose claim or result cannot be read.
func UnreadableResult(id sessions.ID, n int, at time.Time) Result {
	return NewResult(id, n, VerdictUnknown, failure.Unreadable, "", at)
}
