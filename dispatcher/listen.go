package dispatcher

import (
	"context"
	"errors"
	"time"

	"verifyd/dispatcher/callback"
	"verifyd/sessions"
	"verifyd/sessions/relay"
)

// Listeners are developers' own machines, where callbacks of test sessions go while somebody listens there; a *relay.Relay.
type Listeners interface {
	// Find gives the listener of a key. relay.ErrNobody: there is none. Nothing of a callback is sent.
	Find(ctx context.Context, key string) (listener string, err error)
	// Hand hands a callback over and waits for its end. relay.ErrNobody: nothing was sent; any other error: it may have been.
	Hand(ctx context.Context, key, listener string, c relay.Callback) (relay.Answer, error)
}

// listenerAddress stands for an address in the results of what a listener got.
const listenerAddress = "listener"

// sendToListener sends the callback of a test session to who listens for its key; not ok where nobody does, or where it is none. It
// follows the law of every delivery: the claim comes before the first byte, and what was handed over without an answer is unknown.
func (a *attempt) sendToListener(ctx context.Context) (f fate, ok bool) {
	if !a.Test || a.d.c.Listeners == nil {
		return fate{}, false
	}
	listener, err := a.d.c.Listeners.Find(ctx, a.Key)
	if errors.Is(err, relay.ErrNobody) {
		return fate{}, false
	}
	if err != nil {
		return a.trouble("look for a listener", err), true
	}
	request, notSent := a.prepare()
	if notSent != nil {
		return a.notSent(ctx, notSent), true
	}
	a.leave() // the receiver's connections are for those who use them
	now := a.d.now()
	claim := sessions.Claim{
		Session: a.ID, Number: a.number, Worker: a.d.worker, At: now,
		Deadline: now.Add(claimBegin), SettleAfter: now.Add(claimBegin + a.d.c.Timeout + claimMargin),
	}
	if f, ok := a.claim(ctx, claim); !ok {
		return f, true
	}
	if !a.d.c.Now().Before(claim.Deadline) {
		return a.release(callback.Answer{Class: sessions.ClassLate, Detail: "the claim's deadline passed before the callback was handed over"}), true
	}
	return a.conclude(a.hand(ctx, listener, request)), true
}

// hand hands the request over, once.
func (a *attempt) hand(ctx context.Context, listener string, request callback.Request) callback.Answer {
	headers, body := request.Message()
	ctx, cancel := context.WithTimeout(ctx, a.d.c.Timeout)
	defer cancel()
	began := time.Now()
	got, err := a.d.c.Listeners.Hand(ctx, a.Key, listener, relay.Callback{Headers: headers, Body: body})
	answer := listened(got, err)
	answer.Address, answer.Timing.Total = listenerAddress, time.Since(began)
	return answer
}

// listened judges what came of it.
func listened(got relay.Answer, err error) callback.Answer {
	switch {
	case errors.Is(err, relay.ErrNobody):
		return callback.Answer{Verdict: sessions.VerdictReleased, Class: sessions.ClassConnect, Detail: "the listener went away before it got anything"}
	case err != nil:
		return callback.Answer{Verdict: sessions.VerdictUnknown, Class: sessions.ClassTimeout, Detail: "the listener did not say in time how it ended"}
	case !got.Sent:
		return callback.Answer{Verdict: sessions.VerdictReleased, Class: sessions.ClassConnect, Detail: callback.Shown("not sent from the listener's machine: " + got.Detail)}
	case got.Status == 0:
		return callback.Answer{Verdict: sessions.VerdictUnknown, Class: sessions.ClassReset, Detail: callback.Shown("the program behind the listener gave no answer: " + got.Detail)}
	}
	answer := callback.Judge(got.Status)
	answer.Body = callback.ShownBody(got.Body)
	return answer
}
