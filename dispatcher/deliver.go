package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"verifyd/dispatcher/callback"
	"verifyd/natsconf"
	"verifyd/natsconf/crashpoint"
	"verifyd/sessions"
	"verifyd/sessions/tracing"
)

const (
	// scheduleWait bounds the wait for a schedule to be stored. It and a whole AckWait's progress leave the message ours.
	scheduleWait = 5 * time.Second
	// troublePause is after how long a delivery comes again that failed for a reason of our own.
	troublePause = 5 * time.Second
)

// fate is what becomes of the message of a delivery: this value alone decides, and answer alone acts on it.
type fate struct {
	final bool          // the result is stored: acknowledge
	after time.Duration // otherwise: give it out again after this long
}

var settled = fate{final: true}

func again(after time.Duration) fate { return fate{after: after} }

// deliver brings one delivery as far as it gets now, and gives its place back. It owns conn.
func (d *Dispatcher) deliver(ctx context.Context, dl *delivery, p *place, conn *callback.Conn) {
	a := &attempt{d: d, delivery: dl, place: p, conn: conn}
	f := again(troublePause)
	a.open()
	defer func() {
		if p := recover(); p != nil {
			// The claim, if one was made, speaks: this attempt is settled as unknown later.
			d.c.Log.Error().Str("sid", string(dl.ID)).Str("panic", fmt.Sprint(p)).Bytes("stack", debug.Stack()).Msg("a delivery panicked")
			a.closeConn()
		}
		a.leave()
		a.close()
		d.destinations.done(dl)
		d.answer(dl, f)
	}()
	f = a.run(ctx)
}

// answer is the one place that acknowledges. Acknowledgements are hints: the facts decide what a redelivery meets. What waits long
// becomes a message schedule, so that the consumer need not carry it; where that cannot be stored, the consumer does.
func (d *Dispatcher) answer(dl *delivery, f fate) {
	if !f.final && (f.after < d.c.ScheduleFrom || !d.schedule(dl, f.after)) {
		_ = dl.msg.NakWithDelay(max(f.after, time.Millisecond))
		return
	}
	crashpoint.Reach(crashpoint.BeforeAck)
	_ = dl.msg.Ack()
	crashpoint.Reach(crashpoint.AfterAck)
}

func (d *Dispatcher) schedule(dl *delivery, after time.Duration) (stored bool) {
	ctx, cancel := context.WithTimeout(context.Background(), scheduleWait)
	defer cancel()
	err := d.c.Sessions.Schedule(ctx, sessions.Retry{
		Session: dl.ID, Asked: dl.asked, Tries: dl.tries, Since: dl.due, At: d.c.Now().Add(after),
	})
	if err != nil {
		d.c.Log.Warn().Err(err).Str("sid", string(dl.ID)).Msg("a delivery waits with its consumer")
	}
	return err == nil
}

// attempt is one delivery under way.
type attempt struct {
	d *Dispatcher
	*delivery
	place  *place
	conn   *callback.Conn
	number int
	// last is the result of the last attempt that was sent, or given up, and releases how many were released since.
	last     *sessions.Result
	releases int

	contact contact
	span    trace.Span // nil: not traced
}

// run follows the order that is the law of this package: facts, connection, claim, write, result.
func (a *attempt) run(ctx context.Context) fate {
	s, err := a.step(ctx)
	if err != nil {
		return a.trouble("read the facts", err)
	}
	switch s.do {
	case send:
		a.number = s.attempt
		return a.send(ctx)
	case wait:
		return again(s.wait)
	case release:
		a.number = s.attempt
		return a.release(callback.Answer{Class: sessions.ClassLate, Detail: "the claim's acknowledgement was lost, so nothing was sent under it"})
	case settle:
		a.number = s.attempt
		return a.end(a.carry(abandoned(a.ID, s, a.d.worker, a.d.now())), 0)
	case drop:
		return settled
	default:
		return settled
	}
}

// step reads the facts, except for a young completion that nobody can have tried: it has none, and if it had, the claim
// would meet them. An old one may come from a replayed stream; its receiver should not be dialled for nothing.
func (a *attempt) step(ctx context.Context) (step, error) {
	if a.first && a.d.now().Sub(a.CompletedAt) < natsconf.AckWait {
		return decide(a.Completion, nil, 0, a.d.now()), nil
	}
	attempts, err := a.d.c.Sessions.Attempts(ctx, a.ID)
	if err != nil {
		return step{}, err
	}
	a.last, a.releases = ended(attempts)
	if n := len(attempts); n > 0 {
		// Another who saw this claim would have to call its end unknown.
		if last := attempts[n-1]; last.Result == nil && last.Claim.Worker == a.d.worker && a.d.held.wasVain(a.ID, n) {
			return step{do: release, attempt: n}, nil
		}
	}
	s := decide(a.Completion, attempts, a.asked, a.d.now())
	if s.do == drop && a.asked == 0 && len(attempts) > 0 {
		return a.wished(ctx, len(attempts)+1)
	}
	return s, nil
}

// wished looks whether somebody has asked for one more attempt: their wish may have been told by a message that this one replaced.
func (a *attempt) wished(ctx context.Context, number int) (step, error) {
	r, err := a.d.c.Sessions.Asked(ctx, a.ID, number)
	if err != nil || r == nil {
		return step{do: drop}, err
	}
	a.asked, a.due = number, r.At
	return step{do: send, attempt: number}, nil
}

// send makes everything ready before the claim is spent: the exact bytes, and a connection that is alive. Whatever fails until then
// has sent nothing. Where the destination's connections are all in use, and it sends so fast that one will be free in a moment, the
// claim goes ahead of the connection, and is released should none come.
func (a *attempt) send(ctx context.Context) fate {
	if f, ok := a.sendToListener(ctx); ok {
		return f
	}
	request, notSent := a.prepare()
	if notSent == nil && a.place.held {
		notSent = a.connect(ctx)
	}
	if notSent != nil {
		return a.notSent(ctx, notSent)
	}
	crashpoint.Reach(crashpoint.Connected)
	now := a.d.now()
	claim := sessions.Claim{
		Session: a.ID, Number: a.number, Worker: a.d.worker, At: now,
		Deadline: now.Add(claimBegin), SettleAfter: now.Add(claimBegin + a.d.c.Timeout + claimMargin),
	}
	if f, ok := a.claim(ctx, claim); !ok {
		return f
	}
	if !a.place.held {
		if unused := a.follow(ctx); unused != nil {
			return a.release(*unused)
		}
	}
	if !a.d.c.Now().Before(claim.Deadline) {
		return a.release(callback.Answer{Class: sessions.ClassLate, Detail: "the claim's deadline passed before the first byte"})
	}
	return a.conclude(a.post(ctx, request))
}

// post sends the request, once, and reads the answer.
func (a *attempt) post(ctx context.Context, request callback.Request) callback.Answer {
	done := a.part("POST", trace.SpanKindClient)
	answer := a.conn.Send(ctx, request)
	done(attribute.String("http.request.method", http.MethodPost), attribute.Int("http.response.status_code", answer.Status),
		attribute.String("server.address", a.target.HostPort()), tracing.Verdict.String(string(answer.Verdict)), tracing.Class.String(string(answer.Class)))
	return answer
}

// claim takes the attempt. Only ok allows a write.
func (a *attempt) claim(ctx context.Context, c sessions.Claim) (f fate, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, claimWait)
	defer cancel()
	done := a.part("store claim", trace.SpanKindProducer)
	a.d.claims.enter()
	err := a.d.c.Sessions.Claim(ctx, c)
	a.d.claims.leave()
	done()
	switch {
	case err == nil:
		a.d.held.forgetVain(c)
		return fate{}, true
	case errors.Is(err, sessions.ErrClaimed):
		a.d.metrics.conflicts.Inc()
		return again(settleLook), false // the facts tell what the other owner is doing
	default:
		// The claim may be stored, or may be yet. Nothing is sent under it; this process, while it lives, knows that.
		a.d.held.inVain(c)
		return a.trouble("claim", err), false
	}
}

// trouble ends this try for a reason that is not the receiver's.
func (a *attempt) trouble(doing string, err error) fate {
	a.told("", "trouble")
	a.d.c.Log.Warn().Err(err).Str("sid", string(a.ID)).Str("account", a.Account).Str("doing", doing).Msg("a delivery has to wait")
	return again(troublePause)
}
