package dispatcher

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"verifyd/dispatcher/callback"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
)

const (
	// settleLook is added to a wait for another owner's claim, so that the next read comes after the claim's
	// instant.
	settleLook = 100 * time.Millisecond
	// minBackoff and maxBackoff bound the pause between two tries.
	minBackoff = time.Second
	maxBackoff = time.Minute
	// maxReleases bounds how often an attempt may be claimed and released; each costs two facts.
	maxReleases = 16
)

// decision is what to do with a completion, determined only by its facts.
type decision struct {
	do      action
	attempt int           // for doSend, doSettle and doRelease
	wait    time.Duration // for doWait
	giveUp  bool          // for doSettle: the open claim was made to give up, so nothing was sent
	// for doSettle: it is not known whose claim it is, or what was sent under it
	unreadable bool
}

type action int

const (
	doDrop    action = iota // nothing is left to do: acknowledge
	doSend                  // the attempt is due
	doWait                  // another process is working on it: read again later
	doSettle                // an owner vanished: settle its attempt
	doRelease               // this process has an unconfirmed claim of the attempt: release it
)

// decide reads the facts of one delivery. It is pure. Whether one more attempt was requested is looked for
// after it (mayBeRequested).
func decide(c sessions.Completion, attempts []facts.Attempt, now time.Time) decision {
	if n := len(attempts); n > 0 && attempts[n-1].Presumed {
		return decision{do: doSettle, attempt: n, unreadable: true}
	}
	switch facts.StateOfDelivery(c.Outcome, attempts) {
	case facts.DeliveryDue:
		if left := nextDue(attempts).Sub(now); left > 0 {
			return decision{do: doWait, wait: left}
		}
		return decision{do: doSend, attempt: len(attempts) + 1}
	case facts.DeliveryClaimed:
		claim := attempts[len(attempts)-1].Claim
		if left := claim.SettleAfter.Sub(now); left > 0 {
			return decision{do: doWait, wait: left + settleLook}
		}
		return decision{do: doSettle, attempt: claim.Number, giveUp: claim.GiveUp}
	case facts.DeliveryNone, facts.DeliveryDelivered, facts.DeliveryRejected,
		facts.DeliveryUnknown, facts.DeliveryUndeliverable:
		return decision{do: doDrop}
	default:
		return decision{do: doDrop}
	}
}

// neverTried reports whether no process can have tried a completion: its message is delivered for the first
// time, and it is too early for a second.
func neverTried(first bool, completed, now time.Time) bool {
	return first && now.Sub(completed) < topology.AckWait
}

// mayHaveSent reports whether the next attempt of a stray delivery may have been sent under a claim that was
// lost, in a store that may lose facts. If the policy sends the last result again, it may be sent in any
// case.
func mayHaveSent(d facts.Delivery, losesFacts bool) bool {
	last, _ := lastResult(d.Attempts)
	return losesFacts && d.State == facts.DeliveryDue && (last == nil || last.Next.IsZero())
}

// ownOpen reports whether the last attempt is open and belongs to the worker.
func ownOpen(attempts []facts.Attempt, worker string) bool {
	n := len(attempts)
	return n > 0 && attempts[n-1].Result == nil && attempts[n-1].Claim.Worker == worker
}

// mayBeRequested reports whether one more attempt may have been requested of a delivery that has ended. The
// message that it came with does not show that.
func mayBeRequested(s decision, attempts []facts.Attempt) bool {
	return s.do == doDrop && len(attempts) > 0
}

// owner is whose an attempt is after it was claimed.
type owner int

const (
	unconfirmed owner = iota // it is unknown whether the claim is stored, or will be
	ours
	others
)

// ownerAfter judges the answer to a claim. Only ours allows a write.
func ownerAfter(err error) owner {
	switch {
	case err == nil:
		return ours
	case errors.Is(err, facts.ErrClaimed):
		return others
	default:
		return unconfirmed
	}
}

// mayBegin reports whether the owner of a claim may still write its first byte.
func mayBegin(now, deadline time.Time) bool { return now.Before(deadline) }

// sendsAgain reports whether the policy sends a result again, this long before the retry deadline.
func sendsAgain(p sessions.Policy, r facts.Result, left time.Duration) bool {
	if left <= 0 || p != sessions.PolicyAtLeastOnce {
		return false
	}
	switch r.Verdict {
	case facts.VerdictUnknown:
		return true
	case facts.VerdictRejected:
		return r.Status == http.StatusRequestTimeout || r.Status == http.StatusTooEarly ||
			r.Status == http.StatusTooManyRequests || r.Status >= 500
	default:
		return false
	}
}

// releaseAs returns how an attempt ends if nothing was sent under its claim, after the given number of
// releases and this long before the retry deadline: another one may follow, or none.
func releaseAs(releases int, left time.Duration) facts.Verdict {
	if releases+1 >= maxReleases || left <= 0 {
		return facts.VerdictUndeliverable
	}
	return facts.VerdictReleased
}

// nextDue returns when the next attempt is due after the last result; zero: at once.
func nextDue(attempts []facts.Attempt) time.Time {
	if n := len(attempts); n > 0 && attempts[n-1].Result != nil {
		return attempts[n-1].Result.Next
	}
	return time.Time{}
}

// abandoned returns how an attempt whose owner vanished ended.
func abandoned(s decision) callback.Answer {
	r := callback.Answer{
		Verdict: facts.VerdictUnknown, Class: failure.Crash,
		Detail: "the process that was sending ended before it recorded how the attempt ended",
	}
	if s.unreadable {
		r.Class, r.Detail = failure.Unreadable,
			"the message in place of the claim cannot be read, so its owner may have sent"
	}
	if s.giveUp {
		r.Verdict, r.Detail = facts.VerdictUndeliverable,
			"nothing could be sent until the retry deadline passed"
	}
	return r
}

// withEarlierVerdict replaces the verdict of giving up by that of the last attempt before, if that one was
// sent and was to be sent again: "undeliverable" means that nothing was ever sent.
func withEarlierVerdict(r facts.Result, last *facts.Result) facts.Result {
	if r.Verdict == facts.VerdictUndeliverable && last != nil && !last.Next.IsZero() {
		r.Verdict, r.Class, r.Status = last.Verdict, last.Class, last.Status
	}
	return r
}

// lastResult returns the newest result that is not a release, or nil, and how many releases came after it.
func lastResult(attempts []facts.Attempt) (last *facts.Result, releases int) {
	for _, a := range slices.Backward(attempts) {
		switch {
		case a.Result == nil:
		case a.Result.Verdict == facts.VerdictReleased:
			releases++
		default:
			return a.Result, releases
		}
	}
	return nil, releases
}

// disposition is what is done with the message of a delivery. Only dispose acts on it.
type disposition struct {
	final bool          // the result is stored: acknowledge
	after time.Duration // otherwise: deliver it again after this long
}

var ended = disposition{final: true}

// schedules reports whether the delivery waits as a message schedule.
func (f disposition) schedules(from time.Duration) bool { return !f.final && f.after >= from }

// acknowledges reports whether the message is no longer needed: its delivery has ended, or waits in a
// schedule that is stored.
func (f disposition) acknowledges(scheduled bool) bool { return f.final || scheduled }

func retryIn(after time.Duration) disposition { return disposition{after: after} }

// standing returns the disposition of a delivery if another process has stored its attempt's result. If that
// result leaves it due, its message is still needed: the other process had a copy of it, whose nak has no
// effect once this one is acknowledged.
func standing(r facts.Result, now time.Time) disposition {
	if !r.LeavesDue() {
		return ended
	}
	return retryIn(max(r.Next.Sub(now), settleLook))
}

// backoff returns the pause after try number n (from 1) was not sent: drawn evenly between one second and a
// bound that doubles with each try up to a minute. random is in [0, 1).
func backoff(n int, random float64) time.Duration {
	limit := maxBackoff
	if n < 6 { // 2^6 s is beyond a minute
		limit = minBackoff << n
	}
	return minBackoff + time.Duration(random*float64(limit-minBackoff))
}
