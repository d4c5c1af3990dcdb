package dispatcher

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/otel/trace"

	"verifyd/dispatcher/callback"
	"verifyd/sessions"
)

const (
	// settleFor is how long storing a result is tried; after it the attempt is settled as unknown, by its
	// claim.
	settleFor = 20 * time.Second
	// settlePause lies between two tries to store a result.
	settlePause = 250 * time.Millisecond
)

// conclude stores how a sent attempt ended.
func (a *attempt) conclude(answer callback.Answer) disposition {
	if !answer.Reusable {
		a.closeConn()
	}
	if answer.Verdict == sessions.VerdictReleased {
		return a.release(answer)
	}
	a.releaseSlot() // others send while the result is stored
	a.d.metrics.received(a.d.now().Sub(a.due), a.traceID())
	return a.finish(a.newResult(answer), answer.RetryAfter)
}

// finish stores how an attempt ended, and when the next one is due where the policy sends such a result
// again.
func (a *attempt) finish(r sessions.Result, retryAfter time.Duration) disposition {
	left := a.d.giveUpAt(a.delivery).Sub(r.At)
	if left <= 0 || !retriesResult(a.d.policyOf(a.Completion), r) {
		return a.storeResult(r)
	}
	pause := min(max(backoff(a.tries, rand.Float64()), retryAfter), left) //nolint:gosec // jitter
	r.Next = r.At.Add(pause)
	if f := a.storeResult(r); !f.final {
		return f
	}
	return retryIn(pause)
}

// release records that the claim's owner wrote nothing, so that the next attempt may follow, but not without
// end: a receiver that breaks each connection between the claim and the write would cost two facts a time
// until the retry deadline.
func (a *attempt) release(answer callback.Answer) disposition {
	answer.Verdict = sessions.VerdictReleased
	a.closeConn()
	a.releaseSlot()
	if a.releases+1 >= maxReleases || !a.d.now().Before(a.d.giveUpAt(a.delivery)) {
		answer.Verdict = sessions.VerdictUndeliverable // the claim is ours already, and nothing was sent
		return a.storeResult(a.withEarlierVerdict(a.newResult(answer)))
	}
	if f := a.storeResult(a.newResult(answer)); !f.final {
		return f
	}
	return retryIn(backoff(a.number, rand.Float64())) //nolint:gosec // jitter
}

// notSent plans the next try or, once the retry deadline has passed, ends the delivery. Giving up takes the
// claim first: a paused process that still holds this delivery must not send after it was called
// undeliverable.
func (a *attempt) notSent(ctx context.Context, n *callback.NotSent) disposition {
	a.d.metrics.notSent.WithLabelValues(string(n.Class)).Inc()
	a.markSpan("", n.Class)
	a.notify("", n.Class)
	a.contact = contactOf(n.Class)
	if a.contact == missed {
		a.slot.worker.t.breaker.recordFailure(n)
	}
	a.releaseSlot()
	now := a.d.now()
	if left := a.d.giveUpAt(a.delivery).Sub(now); left > 0 {
		pause := min(backoff(a.tries, rand.Float64()), left) //nolint:gosec // jitter
		a.d.c.Log.Info().Str("sid", string(a.ID)).Str("account", a.Account).Int("attempt", a.number).
			Int("tries", a.tries).
			Str("class", string(n.Class)).Str("detail", n.Detail).Dur("took", n.Timing.Total).
			Dur("next", pause).Msg("callback not sent")
		a.d.c.Sessions.Emit(sessions.Event{
			Name: sessions.EventNotSent, Session: a.ID, At: now, Attempt: a.number, Class: n.Class,
			Detail:  n.Detail,
			Address: n.Address, Timing: n.Timing, Next: pause,
		}.Of(a.Session))
		return retryIn(pause)
	}
	if f, ok := a.claim(ctx, a.newGiveUpClaim()); !ok {
		return f
	}
	return a.storeResult(a.withEarlierVerdict(a.newResult(callback.Answer{
		Verdict: sessions.VerdictUndeliverable, Class: n.Class, Detail: n.Detail, Address: n.Address,
		Timing: n.Timing,
	})))
}

// withEarlierVerdict replaces the verdict of giving up by that of the attempt before, where that one was
// sent and was to be sent again: "undeliverable" means that nothing ever was.
func (a *attempt) withEarlierVerdict(r sessions.Result) sessions.Result {
	if r.Verdict == sessions.VerdictUndeliverable && a.last != nil && !a.last.Next.IsZero() {
		r.Verdict, r.Class, r.Status = a.last.Verdict, a.last.Class, a.last.Status
	}
	return r
}

// storeResult stores a result, whatever happens around it: nothing cancels it but its own time.
func (a *attempt) storeResult(r sessions.Result) disposition {
	ctx, cancel := context.WithTimeout(context.Background(), settleFor)
	defer cancel()
	done := a.part("store result", trace.SpanKindProducer)
	defer done()
	for {
		existing, err := a.d.c.Sessions.Settle(ctx, r.Of(a.Session))
		if err == nil {
			a.d.c.Sessions.CountSettled(a.Session, r)
		}
		if err == nil || errors.Is(err, sessions.ErrSettled) {
			if existing.Class == sessions.ClassUnreadable && r.Class != sessions.ClassUnreadable {
				a.d.c.Log.Error().Str("sid", string(a.ID)).Int("attempt", r.Number).
					Str("verdict", string(r.Verdict)).Int("status", r.Status).
					Msg("a result cannot be stored, since something stands in its place that cannot be read; the attempt is shown as unknown")
			}
			a.log(existing, err)
			return settled
		}
		select {
		case <-time.After(settlePause):
		case <-ctx.Done():
			return a.fail("store the result", err)
		}
	}
}

// notify calls OnAttempt. Tests, and a URL that the policy refuses, show nothing about a receiver.
func (a *attempt) notify(verdict sessions.Verdict, class sessions.Class) {
	if a.d.c.OnAttempt != nil && !a.Test && a.refused == nil {
		a.d.c.OnAttempt(AttemptEnd{
			Session: a.ID, Receiver: a.target.HostPort(), Verdict: verdict, Class: class,
		})
	}
}

// log writes the one wide line of an attempt.
func (a *attempt) log(r sessions.Result, err error) {
	a.d.metrics.attempts.WithLabelValues(string(r.Verdict), string(r.Class)).Inc()
	a.markSpan(r.Verdict, r.Class)
	a.notify(r.Verdict, r.Class)
	line := a.d.c.Log.Info().Str("sid", string(a.ID)).Str("account", a.Account).Int("attempt", r.Number).
		Str("verdict", string(r.Verdict)).Str("class", string(r.Class)).Int("status", r.Status).
		Str("address", r.Address).
		Dur("took", r.Timing.Total).Dur("since_completion", r.At.Sub(a.CompletedAt))
	if r.Detail != "" {
		line = line.Str("detail", r.Detail)
	}
	if err != nil {
		line = line.Str("settled_by", r.By)
	}
	if id := a.traceID(); id != "" {
		line = line.Str("trace_id", id)
	}
	line.Msg("callback attempt")
}
