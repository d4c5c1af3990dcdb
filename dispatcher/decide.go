package dispatcher

import (
	"net/http"
	"slices"
	"time"

	"verifyd/dispatcher/callback"
	"verifyd/sessions"
)

// decision is what to do with a completion, from its facts alone.
type decision struct {
	do      action
	attempt int           // for send, settle and release
	wait    time.Duration // for wait
	giveUp  bool          // for settle: the open claim was taken to give up, so nothing was sent
	// for settle: nobody knows whose claim it is, and what was sent under it
	unreadable bool
}

type action int

const (
	drop    action = iota // nothing is left to do: acknowledge
	send                  // the attempt is due
	wait                  // another process is working on it: read again later
	settle                // an owner vanished: settle its attempt
	release               // this process has an unconfirmed claim of the attempt: release it
)

// settleLook is added to a wait for another owner's claim, so that the look falls after its instant.
const settleLook = 100 * time.Millisecond

// decide reads the facts of one delivery. It is pure. requested is the attempt that somebody requested, 0
// where nobody did.
func decide(c sessions.Completion, attempts []sessions.Attempt, requested int, now time.Time) decision {
	if requested == len(attempts)+1 {
		return decision{do: send, attempt: requested}
	}
	if n := len(attempts); n > 0 && attempts[n-1].Presumed {
		return decision{do: settle, attempt: n, unreadable: true}
	}
	switch sessions.StateOfDelivery(c.Outcome, attempts) {
	case sessions.DeliveryDue:
		if left := nextDue(attempts).Sub(now); left > 0 {
			return decision{do: wait, wait: left}
		}
		return decision{do: send, attempt: len(attempts) + 1}
	case sessions.DeliveryClaimed:
		claim := attempts[len(attempts)-1].Claim
		if left := claim.SettleAfter.Sub(now); left > 0 {
			return decision{do: wait, wait: left + settleLook}
		}
		return decision{do: settle, attempt: claim.Number, giveUp: claim.GiveUp}
	case sessions.DeliveryNone, sessions.DeliveryDelivered, sessions.DeliveryRejected,
		sessions.DeliveryUnknown, sessions.DeliveryUndeliverable:
		return decision{do: drop}
	default:
		return decision{do: drop}
	}
}

// nextDue returns from when the next attempt is due after the last result; zero: at once.
func nextDue(attempts []sessions.Attempt) time.Time {
	if n := len(attempts); n > 0 && attempts[n-1].Result != nil {
		return attempts[n-1].Result.Next
	}
	return time.Time{}
}

// retriesResult reports whether the policy sends a result again.
func retriesResult(p sessions.Policy, r sessions.Result) bool {
	if p != sessions.PolicyAtLeastOnce {
		return false
	}
	switch r.Verdict {
	case sessions.VerdictUnknown:
		return true
	case sessions.VerdictRejected:
		return r.Status == http.StatusRequestTimeout || r.Status == http.StatusTooEarly ||
			r.Status == http.StatusTooManyRequests || r.Status >= 500
	default:
		return false
	}
}

// abandoned returns how an attempt ended whose owner vanished.
func abandoned(s decision) callback.Answer {
	r := callback.Answer{
		Verdict: sessions.VerdictUnknown, Class: sessions.ClassCrash,
		Detail: "the process that was sending ended before it recorded how the attempt ended",
	}
	if s.unreadable {
		r.Class, r.Detail = sessions.ClassUnreadable,
			"what stands in the place of the claim cannot be read, so that whoever has it may have sent"
	}
	if s.giveUp {
		r.Verdict, r.Detail = sessions.VerdictUndeliverable,
			"nothing could be sent until the retry deadline passed"
	}
	return r
}

// lastResult returns the newest result that is not a release, or nil, and how many releases came after it.
func lastResult(attempts []sessions.Attempt) (last *sessions.Result, releases int) {
	for _, a := range slices.Backward(attempts) {
		switch {
		case a.Result == nil:
		case a.Result.Verdict == sessions.VerdictReleased:
			releases++
		default:
			return a.Result, releases
		}
	}
	return nil, releases
}
