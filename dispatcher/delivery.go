package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/trace"

	"verifyd/dispatcher/callback"
	"verifyd/natsconf/crashpoint"
	"verifyd/natsconf/wait"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
	"verifyd/sessions/urlpolicy"
)

// This file is the life of a delivery, in the order in which it happens: it is due, its facts decide, a way
// to send is acquired, the attempt is claimed, the callback is sent once, its result is stored, and its
// message is disposed of (fetcher.go).

const (
	// claimBegin is how long after its claim an owner may begin to write. It covers a paused process, not a
	// slow one: the connection is ready and the request prepared when the claim is made.
	claimBegin = 5 * time.Second
	// maxMoved is by how much a machine's clock may move against the time that it has counted, between a
	// claim and the first byte. Corrections are milliseconds.
	maxMoved = time.Second
	// claimWait bounds the wait for a claim's acknowledgement: after it the owner could no longer write
	// anyway.
	claimWait = claimBegin
	// claimMargin is the time between the end of the longest attempt and the instant from which others may
	// settle it.
	claimMargin = 5 * time.Second
	// storeResultFor is how long a delivery tries to store a result; after that the attempt is settled as
	// unknown, by its claim.
	storeResultFor = 20 * time.Second
	// storeResultPause is the interval between two tries to store a result.
	storeResultPause = 250 * time.Millisecond
	// failurePause is the pause before the next try of a delivery that failed for a reason of our own.
	failurePause = 5 * time.Second
	// scheduleWait bounds the wait for a schedule to be stored. With it and a whole AckWait's progress, the
	// message is still ours.
	scheduleWait = 5 * time.Second
)

// delivery is one completion that is due, as the fetcher made it from its message.
type delivery struct {
	sessions.Completion
	msg    jetstream.Msg
	given  int           // how often JetStream delivered this message
	first  bool          // no process can have tried it before
	target urlpolicy.URL // its callback URL
	// barred is why it is not sent: its URL is refused, because the operator's policy has changed since the
	// session was started; or its host is paused, and its outcome leaves the store before the pause ends.
	barred *callback.NotSent // nil: it goes to its receiver

	tries     int       // how often a dispatcher tried it, this time included
	due       time.Time // since when it is to be sent: its completion, or the request to send it again
	requested int       // the attempt that somebody asked for, by its message or by its facts; 0: none
}

// receiver returns the host and port that it goes to; empty if it goes nowhere.
func (dl *delivery) receiver() string {
	if dl.barred != nil {
		return ""
	}
	return dl.target.HostPort()
}

// attempt is one delivery under way.
type attempt struct {
	*shared
	*delivery
	way    sender
	number int
	// last is the result of the last attempt that was sent, or given up; releases is how many were released
	// since.
	last     *facts.Result
	releases int
	span     *span // nil: not traced
}

// deliver takes one delivery as far as possible now, and releases its slot.
func (d *shared) deliver(ctx context.Context, dl *delivery, slot *connSlot) {
	a := &attempt{shared: d, delivery: dl, span: d.newSpan(dl.Completion)}
	a.way = &connSender{d: d, account: dl.Account, target: dl.target, slot: slot, span: a.span,
		learnt: errUntried}
	f := retryIn(failurePause)
	defer func() {
		if p := recover(); p != nil {
			// If a claim was made, this attempt is settled as unknown later.
			d.c.Log.Error().Str("sid", string(dl.ID)).Str("panic", fmt.Sprint(p)).
				Bytes("stack", debug.Stack()).Msg("a delivery panicked")
			slot.closeConn()
		}
		a.way.release()
		a.span.end()
		d.held.remove(dl.ID, dl.Account)
		d.dispose(dl, f)
	}()
	f = a.run(ctx)
}

// run carries out what the facts decide.
func (a *attempt) run(ctx context.Context) disposition {
	s, err := a.decide(ctx)
	if err != nil {
		return a.fail("read the facts", err)
	}
	a.number = s.attempt
	a.span.setNumber(a.number)
	switch s.do {
	case doSend:
		return a.send(ctx)
	case doWait:
		return retryIn(s.wait)
	case doRelease:
		return a.release(late(lostClaim))
	case doSettle:
		return a.settleAbandoned(ctx, s)
	case doDrop:
	}
	return ended
}

// settleAbandoned stores the result of an attempt whose owner vanished, if this process may judge that. One
// that was presumed may have been read before, and another attempt requested: that is looked for again.
func (a *attempt) settleAbandoned(ctx context.Context, s decision) disposition {
	if err := a.c.Conn.Clock.Judge(ctx); err != nil {
		return a.fail("settle another's claim", err)
	}
	f := a.finish(withEarlierVerdict(a.newResult(abandoned(s)), a.last), 0)
	if f.final && s.unreadable {
		return retryIn(settleLook)
	}
	return f
}

// decide reads the facts, except for a young completion that no process can have tried: it has none, and if
// it had, the claim would conflict. An old one may come from a replayed stream; its receiver should not be
// dialled for nothing.
func (a *attempt) decide(ctx context.Context) (decision, error) {
	if neverTried(a.first, a.CompletedAt, a.now()) {
		return decide(a.Completion, nil, a.now()), nil
	}
	attempts, err := a.c.Sessions.Attempts(ctx, a.ID)
	if err != nil {
		return decision{}, err
	}
	a.last, a.releases = lastResult(attempts)
	if n := len(attempts); ownOpen(attempts, a.c.Worker) && a.unconfirmed.has(a.ID, n) {
		// Another process would have to settle this claim as unknown.
		return decision{do: doRelease, attempt: n}, nil
	}
	s := decide(a.Completion, attempts, a.now())
	if mayBeRequested(s, attempts) {
		s, err = a.orRequested(ctx, s, len(attempts)+1)
	}
	// No outcome is kept so briefly, and none is erased before its delivery has ended. If it has left the
	// store, a claim may have left before it was looked for: the completion is the oldest, and read last.
	if err == nil && s.do == doSend && (a.requested > 0 || a.now().Sub(a.CompletedAt) > a.c.EndBefore) {
		if _, err = a.c.Sessions.Completion(ctx, a.ID); errors.Is(err, sessions.ErrNotFound) {
			return decision{do: doDrop}, nil
		}
	}
	return s, err
}

// orRequested decides to send one more attempt if somebody has requested it, and otherwise what the other
// facts decide. Only the request among the facts counts: a message may name an attempt that nobody requested,
// and may have replaced the one that a request came with.
func (a *attempt) orRequested(ctx context.Context, s decision, number int) (decision, error) {
	r, err := a.c.Sessions.ResendOf(ctx, a.ID, number)
	switch {
	case err != nil:
		return decision{}, err
	case r != nil:
		a.requested, a.due = number, r.At
		return decision{do: doSend, attempt: number}, nil
	case a.requested == number: // a request that was delivered is stored, or has aged out, with its message
		return decision{}, errNoRequest
	}
	return s, nil
}

// errNoRequest: the leader that was asked does not have a request whose message was delivered. Its answer may
// be one from before it heard of its successor.
var errNoRequest = errors.New("the request to send again is not found")

// send prepares everything before the claim is made: the exact bytes, and a way to send them. If anything
// fails until then, nothing was sent.
func (a *attempt) send(ctx context.Context) disposition {
	if a.Lost {
		return a.notSent(ctx, &callback.NotSent{Class: failure.Lost})
	}
	listener, err := a.findListener(ctx, a.Session)
	if err != nil {
		return a.fail("look for a listener", err)
	}
	if listener != nil {
		a.way.release() // the receiver's connections are for deliveries that use them
		a.way = listener
	}
	request, notSent := a.prepare()
	if notSent == nil {
		notSent = a.way.acquire(ctx)
	}
	if notSent != nil {
		return a.notSent(ctx, notSent)
	}
	crashpoint.Reach(crashpoint.Connected)
	skew := a.c.Conn.Clock.Skew()
	claim := facts.NewClaim(a.ID, a.number, a.c.Worker, a.now(), claimBegin, a.c.Timeout+claimMargin)
	if !a.outlives(a.Completion, claim.Deadline) {
		return a.notSent(ctx, notSentForAge())
	}
	if f, ok := a.claim(ctx, claim); !ok {
		return f
	}
	return a.conclude(a.way.send(ctx, request, window{claim.Deadline, skew}))
}

// prepare makes the exact bytes.
func (a *attempt) prepare() (callback.Request, *callback.NotSent) {
	if a.barred != nil {
		return callback.Request{}, a.barred
	}
	secrets, ok := a.c.Secrets.SigningSecrets(a.Account)
	if !ok {
		return callback.Request{}, &callback.NotSent{
			Class: failure.Unsigned, Detail: "the account is not known here",
		}
	}
	request, err := a.c.Client.Prepare(callback.Callback{
		URL: a.target, Session: a.ID, Test: a.Test, PlatformUserID: a.PlatformUserID, GuildID: a.GuildID,
		Verified: a.Verified(),
		Secrets:  secrets, At: a.now(), Trace: a.span.parent(),
	})
	if err != nil { // the account has no signing secret that signs
		return callback.Request{}, &callback.NotSent{Class: failure.Unsigned, Detail: err.Error(), Err: err}
	}
	return request, nil
}

// claim takes the attempt. Only ok allows a write.
func (a *attempt) claim(ctx context.Context, c facts.Claim) (f disposition, ok bool) {
	try, cancel := context.WithTimeout(ctx, claimWait)
	defer cancel()
	done := a.span.part("store claim", trace.SpanKindProducer)
	err := a.storeClaim(try, c)
	done()
	switch ownerAfter(err) {
	case ours:
		a.unconfirmed.drop(c)
		return disposition{}, true
	case others:
		a.metrics.conflicts.Inc()
		return retryIn(settleLook), false // the facts show what the other owner is doing
	default:
		return a.releaseUnconfirmed(ctx, c, err), false
	}
}

func (a *attempt) storeClaim(ctx context.Context, c facts.Claim) error {
	a.claims.Enter()
	defer a.claims.Leave()
	return a.c.Sessions.Claim(ctx, c)
}

// releaseUnconfirmed ends a try whose claim may be stored, or may be yet. Nothing is sent under it, which
// only this process knows: it keeps the delivery until the store answers, since another would have to settle
// the claim as unknown. It claims once more, after which the first claim stands or never will.
func (a *attempt) releaseUnconfirmed(ctx context.Context, c facts.Claim, unanswered error) disposition {
	a.unconfirmed.add(c)
	a.way.release() // others send meanwhile
	ctx, cancel := wait.For(ctx, c.SettleAfter.Sub(a.now()))
	defer cancel()
	_ = a.storeClaim(ctx, c)
	if attempts, err := a.c.Sessions.Attempts(ctx, a.ID); err == nil && ownOpen(attempts, a.c.Worker) {
		return a.release(late(lostClaim))
	}
	return a.fail("claim", unanswered)
}

// conclude stores how a sent attempt ended.
func (a *attempt) conclude(answer callback.Answer) disposition {
	if answer.Verdict == facts.VerdictReleased {
		return a.release(answer)
	}
	a.way.release() // others send while the result is stored
	if answer.Status != 0 {
		a.metrics.answered(a.now().Sub(a.due), a.span.id())
	}
	return a.finish(a.newResult(answer), answer.RetryAfter)
}

// finish stores how an attempt ended, and when the next one is due, if the policy sends such a result again.
func (a *attempt) finish(r facts.Result, retryAfter time.Duration) disposition {
	left := a.giveUpAt(a.delivery).Sub(r.At) // not a.left: on a wrong clock, too, the attempt has ended
	if !sendsAgain(a.policyOf(a.Completion), r, left) {
		return a.storeResult(r)
	}
	pause := min(max(backoff(a.tries, a.c.Random()), retryAfter), left)
	r.Next = r.At.Add(pause)
	if f := a.storeResult(r); !f.final {
		return f
	}
	return retryIn(pause)
}

// release records that the claim's owner wrote nothing, so that the next attempt may follow. It does not do
// so without end: a receiver that breaks each connection between the claim and the write would cost two facts
// each time until the retry deadline.
func (a *attempt) release(answer callback.Answer) disposition {
	a.way.release()
	left := a.left(a.now())
	if answer.Verdict = releaseAs(a.releases, left); answer.Verdict != facts.VerdictReleased {
		return a.storeResult(withEarlierVerdict(a.newResult(answer), a.last))
	}
	if f := a.storeResult(a.newResult(answer)); !f.final {
		return f
	}
	return retryIn(backoff(a.number, a.c.Random()))
}

// notSent plans the next try or, once the retry deadline has passed, ends the delivery. Giving up takes the
// claim first: a paused process that still holds this delivery must not send after it was called
// undeliverable.
func (a *attempt) notSent(ctx context.Context, n *callback.NotSent) disposition {
	a.metrics.notSent.WithLabelValues(string(n.Class)).Inc()
	a.span.mark("", n.Class)
	left := a.left(a.now())
	a.notify("", n.Class, 0, left > 0)
	a.way.release()
	if left > 0 {
		pause := min(backoff(a.tries, a.c.Random()), left)
		a.reportNotSent(a.Completion, a.number, a.tries, n, pause)
		return retryIn(pause)
	}
	claim := facts.NewClaim(a.ID, a.number, a.c.Worker, a.now(), 0, claimMargin)
	claim.GiveUp = true
	if f, ok := a.claim(ctx, claim); !ok {
		return f
	}
	return a.storeResult(withEarlierVerdict(a.newResult(callback.Answer{
		Verdict: facts.VerdictUndeliverable, Class: n.Class, Detail: n.Detail, Address: n.Address,
		Timing: n.Timing,
	}), a.last))
}

// storeResult stores a result, whatever happens around it: nothing cancels it but its own time. That begins
// again where the process, or its machine, was stopped meanwhile: only it knows how the attempt ended.
func (a *attempt) storeResult(r facts.Result) disposition {
	done := a.span.part("store result", trace.SpanKindProducer)
	defer done()
	for until := time.Now().Add(storeResultFor); ; <-time.After(storeResultPause) {
		ctx, cancel := context.WithDeadline(context.Background(), until)
		existing, err := a.c.Sessions.StoreResult(ctx, r.Of(a.Session))
		cancel()
		if err == nil {
			a.c.Sessions.CountResult(a.Session, r)
		}
		if err == nil || errors.Is(err, facts.ErrHasResult) {
			a.reportUnstorable(r, existing)
			a.span.mark(existing.Verdict, existing.Class)
			a.notify(existing.Verdict, existing.Class, existing.Status, existing.LeavesDue())
			a.reportResult(a.Completion, existing, err, a.span.id())
			if err != nil {
				return standing(existing, a.now())
			}
			return ended
		}
		if late := time.Since(until); late > time.Second { // it did not run
			until = time.Now().Add(storeResultFor)
		} else if late >= 0 {
			return a.fail("store the result", err)
		}
	}
}

// newResult returns the result of an attempt that ended this way.
func (a *attempt) newResult(answer callback.Answer) facts.Result {
	r := facts.NewResult(a.ID, a.number, answer.Verdict, answer.Class, a.c.Worker, a.now())
	r.Status, r.Detail, r.Address, r.Answer, r.Timing = answer.Status, answer.Detail, answer.Address,
		answer.Body, answer.Timing
	return r
}

// fail ends this try for an internal reason.
func (a *attempt) fail(doing string, err error) disposition {
	a.span.mark("", "trouble")
	a.c.Log.Warn().Err(err).Str("sid", string(a.ID)).Str("account", a.Account).Str("doing", doing).
		Msg("a delivery has to wait")
	return retryIn(failurePause)
}
