package dispatcher

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/trace"

	"verifyd/dispatcher/callback"
	"verifyd/sessions"
)

const (
	// claimBegin is how long after its claim an owner may begin to write. It covers a paused process, not a
	// slow one: the connection is ready and the request prepared when the claim is made.
	claimBegin = 5 * time.Second
	// claimWait bounds the wait for a claim's acknowledgement: past it the owner could not write any more
	// anyway.
	claimWait = claimBegin
	// claimMargin is what lies between the end of the longest attempt and the instant from which others may
	// settle it.
	claimMargin = 5 * time.Second
)

// newClaim returns the claim under which the callback is sent.
func (a *attempt) newClaim() sessions.Claim {
	return sessions.NewClaim(a.ID, a.number, a.d.worker, a.d.now(), claimBegin, a.d.c.Timeout+claimMargin)
}

// newGiveUpClaim returns the claim under which the delivery is given up.
func (a *attempt) newGiveUpClaim() sessions.Claim {
	c := sessions.NewClaim(a.ID, a.number, a.d.worker, a.d.now(), 0, claimMargin)
	c.GiveUp = true
	return c
}

// newResult returns the result of the attempt that ended so.
func (a *attempt) newResult(answer callback.Answer) sessions.Result {
	r := sessions.NewResult(a.ID, a.number, answer.Verdict, answer.Class, a.d.worker, a.d.now())
	r.Status, r.Detail, r.Address, r.Answer, r.Timing = answer.Status, answer.Detail, answer.Address,
		answer.Body, answer.Timing
	return r
}

// claim takes the attempt. Only ok allows a write.
func (a *attempt) claim(ctx context.Context, c sessions.Claim) (f disposition, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, claimWait)
	defer cancel()
	done := a.part("store claim", trace.SpanKindProducer)
	a.d.claims.enter()
	err := a.d.c.Sessions.Claim(ctx, c)
	a.d.claims.leave()
	done()
	switch {
	case err == nil:
		a.d.inFlight.dropUnconfirmed(c)
		return disposition{}, true
	case errors.Is(err, sessions.ErrClaimed):
		a.d.metrics.conflicts.Inc()
		return retryIn(settleLook), false // the facts tell what the other owner is doing
	default:
		// The claim may be stored, or may be yet. Nothing is sent under it; this process, while it lives,
		// knows that.
		a.d.inFlight.addUnconfirmed(c)
		return a.fail("claim", err), false
	}
}
