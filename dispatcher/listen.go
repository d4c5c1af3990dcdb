package dispatcher

import (
	"context"
	"errors"
	"time"

	"verifyd/dispatcher/callback"
	"verifyd/natsconf/devtunnel"
	"verifyd/sessions"
)

// Listeners are developers' own machines, where callbacks of test sessions go while somebody listens there;
// a *devtunnel.Relay.
type Listeners interface {
	// Find returns the listener of a key. devtunnel.ErrNobody: there is none. Nothing of a callback is sent.
	Find(ctx context.Context, key string) (listener string, err error)
	// Hand hands a callback over and waits for its end. devtunnel.ErrNobody: nothing was sent; any other
	// error: it may have been.
	Hand(ctx context.Context, key, listener string, c devtunnel.Callback) (devtunnel.Answer, error)
}

// listenerAddress stands for an address in the results of what a listener got.
const listenerAddress = "listener"

// sendToListener sends the callback of a test session to the listener of its key; not ok where there is none,
// or the session is no test. It keeps the order of every delivery: the claim comes before the first byte, and
// what was handed over without an answer is unknown.
func (a *attempt) sendToListener(ctx context.Context) (f disposition, ok bool) {
	if !a.Test || a.d.c.Listeners == nil {
		return disposition{}, false
	}
	listener, err := a.d.c.Listeners.Find(ctx, a.Key)
	if errors.Is(err, devtunnel.ErrNobody) {
		return disposition{}, false
	}
	if err != nil {
		return a.fail("look for a listener", err), true
	}
	request, notSent := a.prepare()
	if notSent != nil {
		return a.notSent(ctx, notSent), true
	}
	a.releaseSlot() // the receiver's connections are for those who use them
	claim := a.newClaim()
	if f, ok := a.claim(ctx, claim); !ok {
		return f, true
	}
	if !a.d.c.Now().Before(claim.Deadline) {
		return a.release(callback.Answer{Class: sessions.ClassLate,
			Detail: "the claim's deadline passed before the callback was handed over"}), true
	}
	return a.conclude(a.handOver(ctx, listener, request)), true
}

// handOver hands the request over, once.
func (a *attempt) handOver(ctx context.Context, listener string, request callback.Request) callback.Answer {
	headers, body := request.Message()
	ctx, cancel := context.WithTimeout(ctx, a.d.c.Timeout)
	defer cancel()
	began := time.Now()
	got, err := a.d.c.Listeners.Hand(ctx, a.Key, listener, devtunnel.Callback{Headers: headers, Body: body})
	answer := answerOfListener(got, err)
	answer.Address, answer.Timing.Total = listenerAddress, time.Since(began)
	return answer
}

// answerOfListener classifies what came of it.
func answerOfListener(got devtunnel.Answer, err error) callback.Answer {
	switch {
	case errors.Is(err, devtunnel.ErrNobody):
		return callback.Answer{
			Verdict: sessions.VerdictReleased, Class: sessions.ClassConnect,
			Detail: "the listener went away before it got anything",
		}
	case err != nil:
		return callback.Answer{
			Verdict: sessions.VerdictUnknown, Class: sessions.ClassTimeout,
			Detail: "the listener did not say in time how it ended",
		}
	case !got.Sent:
		return callback.Answer{
			Verdict: sessions.VerdictReleased, Class: sessions.ClassConnect,
			Detail: callback.Printable("not sent from the listener's machine: " + got.Detail),
		}
	case got.Status == 0:
		return callback.Answer{
			Verdict: sessions.VerdictUnknown, Class: sessions.ClassReset,
			Detail: callback.Printable("the program behind the listener gave no answer: " + got.Detail),
		}
	}
	answer := callback.ClassifyStatus(got.Status)
	answer.Body = callback.PrintableBody(got.Body)
	return answer
}
