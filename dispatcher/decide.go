package dispatcher

import (
	"time"

	"verifyd/sessions"
)

// step is what to do with a completion, from its facts alone.
type step struct {
	do      action
	attempt int           // for send and settle
	wait    time.Duration // for wait
	giveUp  bool          // for settle: the open claim was taken to give up, so nothing was sent
}

type action int

const (
	drop   action = iota // nothing is left to do: acknowledge
	send                 // the attempt is due
	wait                 // somebody is at it: look again later
	settle               // an owner vanished: settle its attempt
)

// settleLook is added to a wait for another owner's claim, so that the look falls after its instant.
const settleLook = 100 * time.Millisecond

// decide reads the facts of one delivery. It is pure.
func decide(c sessions.Completion, attempts []sessions.Attempt, now time.Time) step {
	switch sessions.StateOfDelivery(c.Outcome, attempts) {
	case sessions.DeliveryDue:
		return step{do: send, attempt: len(attempts) + 1}
	case sessions.DeliveryClaimed:
		claim := attempts[len(attempts)-1].Claim
		if left := claim.SettleAfter.Sub(now); left > 0 {
			return step{do: wait, wait: left + settleLook}
		}
		return step{do: settle, attempt: claim.Number, giveUp: claim.GiveUp}
	case sessions.DeliveryNone, sessions.DeliveryDelivered, sessions.DeliveryRejected, sessions.DeliveryUnknown, sessions.DeliveryUndeliverable:
		return step{do: drop}
	default:
		return step{do: drop}
	}
}

// abandoned is the result of an attempt whose owner vanished.
func abandoned(id sessions.ID, s step, by string, now time.Time) sessions.Result {
	r := sessions.Result{
		Session: id, Number: s.attempt, Verdict: sessions.VerdictUnknown, Class: sessions.ClassCrash, By: by, At: now,
		Detail: "the process that was sending ended before it recorded how the attempt ended",
	}
	if s.giveUp {
		r.Verdict, r.Detail = sessions.VerdictUndeliverable, "nothing could be sent until the retry deadline passed"
	}
	return r
}
