package dispatcher

import (
	"context"
	"errors"
	"time"

	"verifyd/dispatcher/callback"
	"verifyd/natsconf/devtunnel"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
)

// listenerAddress stands for an address in the results of callbacks that a listener got.
const listenerAddress = "listener"

// listenSender hands the callback of a test session to a developer who listens with its key, instead of to
// the receiver. It keeps the order of every delivery: the claim comes before the first byte, and a callback
// that was handed over without an answer is unknown.
type listenSender struct {
	d             *shared
	key, listener string
}

// findListener returns the way to the developer who listens for a session; nil if there is none, or if it is
// no test.
func (d *shared) findListener(ctx context.Context, s sessions.Session) (*listenSender, error) {
	if !s.Test || d.c.Listeners == nil {
		return nil, nil //nolint:nilnil // nobody listens
	}
	listener, err := d.c.Listeners.Find(ctx, s.Key)
	if errors.Is(err, devtunnel.ErrNoListener) {
		return nil, nil //nolint:nilnil // nobody listens
	}
	return &listenSender{d: d, key: s.Key, listener: listener}, err
}

// acquire has nothing to do: the listener was found.
func (s *listenSender) acquire(context.Context) *callback.NotSent { return nil }

func (s *listenSender) release() {}

func (s *listenSender) send(ctx context.Context, r callback.Request, before time.Time) callback.Answer {
	if !mayBegin(s.d.c.Now(), before) {
		return late("the claim's deadline passed before the callback was handed over")
	}
	headers, body := r.Message()
	ctx, cancel := context.WithTimeout(ctx, s.d.c.Timeout)
	defer cancel()
	began := time.Now()
	got, err := s.d.c.Listeners.Hand(ctx, s.key, s.listener, devtunnel.Callback{Headers: headers, Body: body})
	answer := answerOfListener(got, err)
	answer.Address, answer.Timing.Total = listenerAddress, time.Since(began)
	return answer
}

// answerOfListener classifies how that ended.
func answerOfListener(got devtunnel.Answer, err error) callback.Answer {
	switch {
	case errors.Is(err, devtunnel.ErrNoListener):
		return callback.Answer{
			Verdict: facts.VerdictReleased, Class: failure.Connect,
			Detail: "the listener went away before it got anything",
		}
	case err != nil:
		return callback.Answer{
			Verdict: facts.VerdictUnknown, Class: failure.Timeout,
			Detail: "the listener did not say in time how it ended",
		}
	case !got.Sent:
		return callback.Answer{
			Verdict: facts.VerdictReleased, Class: failure.Connect,
			Detail: callback.Printable("not sent from the listener's machine: " + got.Detail),
		}
	case got.Status == 0:
		return callback.Answer{
			Verdict: facts.VerdictUnknown, Class: failure.Reset,
			Detail: callback.Printable("the program behind the listener gave no answer: " + got.Detail),
		}
	}
	answer := callback.ClassifyStatus(got.Status)
	answer.Body = callback.PrintableBody(got.Body)
	return answer
}
