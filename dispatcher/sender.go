package dispatcher

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"verifyd/dispatcher/callback"
	"verifyd/natsconf/devtunnel"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
	"verifyd/sessions/tracing"
	"verifyd/sessions/urlpolicy"
)

// sender is a way to send one callback: a connection to its receiver, or a developer who listens.
type sender interface {
	// acquire is called before the claim, and makes sure that nothing but the claim is missing. If it returns
	// a NotSent, nothing was sent.
	acquire(ctx context.Context) *callback.NotSent
	// send sends the request, once, unless it cannot begin within the claim's window. If the answer is
	// released, nothing was sent.
	send(ctx context.Context, r callback.Request, w window) callback.Answer
	// release returns what acquire took, for others to use. A repeat is harmless.
	release()
}

// window is when the owner of a claim may begin to write.
type window struct {
	deadline time.Time     // until then
	skew     time.Duration // while this is about the skew of the machine's clock
}

// open reports whether the owner may begin now. It may not if its machine was suspended since it claimed, or
// its clock set: then it does not know how long ago that was.
func (d *shared) open(now time.Time, w window) bool {
	return mayBegin(now, w.deadline) && (d.c.Conn.Clock.Skew()-w.skew).Abs() < maxMoved
}

// connSender sends over a connection to the receiver.
type connSender struct {
	d       *shared
	account string
	target  urlpolicy.URL
	slot    *connSlot
	span    *span

	freeAddress func() // makes room at the receiver's address; nil: nothing to do
	learnt      error  // about the receiver, as the breaker gets it
}

// acquire ensures a connection that is alive.
func (s *connSender) acquire(ctx context.Context) *callback.NotSent {
	if s.canReuse() {
		s.learnt = nil
		return nil
	}
	s.closeConn()
	done := s.span.part("connect", trace.SpanKindClient)
	conn, leave, err := s.d.c.Client.DialAdmitted(ctx, s.target,
		func(ctx context.Context, to netip.Addr) (func(), error) {
			return s.d.addresses.Acquire(ctx, s.account, to)
		})
	done(attribute.String("server.address", s.target.HostPort()))
	s.slot.dialEnded(err == nil)
	if err == nil {
		s.slot.conn, s.freeAddress, s.learnt = conn, leave, nil
		return nil
	}
	notSent, ok := errors.AsType[*callback.NotSent](err)
	if !ok {
		notSent = &callback.NotSent{Class: failure.Connect, Detail: err.Error(), Err: err}
	}
	if s.learnt = contactOf(notSent.Class); errors.Is(s.learnt, errMissed) {
		s.slot.of.breaker.recordFailure(notSent)
	}
	return notSent
}

// canReuse reports whether the connection that was kept can carry the request.
func (s *connSender) canReuse() (ok bool) {
	if s.slot.conn == nil || !s.slot.conn.Alive() {
		return false
	}
	s.freeAddress, ok = s.d.addresses.AcquireNow(s.account, s.slot.conn.IP())
	return ok
}

func (s *connSender) send(ctx context.Context, r callback.Request,
	w window) (answer callback.Answer) {
	defer func() {
		if !answer.Reusable {
			s.closeConn()
		}
	}()
	if !s.d.open(s.d.c.Now(), w) {
		return late("the claim's deadline passed before the first byte")
	}
	done := s.span.part("POST", trace.SpanKindClient)
	answer = s.slot.conn.Send(ctx, r)
	done(attribute.String("http.request.method", http.MethodPost),
		attribute.Int("http.response.status_code", answer.Status),
		attribute.String("server.address", s.target.HostPort()),
		tracing.Verdict.String(string(answer.Verdict)), tracing.Class.String(string(answer.Class)))
	return answer
}

func (s *connSender) closeConn() {
	s.slot.closeConn()
	s.leaveAddress()
}

func (s *connSender) release() {
	s.leaveAddress()
	s.slot.release(s.learnt)
}

// leaveAddress releases the place at the receiver's address. A repeat is harmless.
func (s *connSender) leaveAddress() {
	if s.freeAddress != nil {
		s.freeAddress()
		s.freeAddress = nil
	}
}

// lostClaim is why a claim of this process was released.
const lostClaim = "the claim's acknowledgement was lost, so nothing was sent under it"

// late returns the answer of a claim under which nothing was sent, since it was too late.
func late(detail string) callback.Answer {
	return callback.Released(failure.Late, detail)
}

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

func (s *listenSender) send(ctx context.Context, r callback.Request, w window) callback.Answer {
	if !s.d.open(s.d.c.Now(), w) {
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
		return callback.Released(failure.Connect, "the listener went away before it got anything")
	case err != nil:
		return callback.Answer{
			Verdict: facts.VerdictUnknown, Class: failure.Timeout,
			Detail: "the listener did not say in time how it ended",
		}
	case !got.Sent:
		return callback.Released(failure.Connect,
			callback.Printable("not sent from the listener's machine: "+got.Detail))
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
