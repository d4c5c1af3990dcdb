package dispatcher

import (
	"context"
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
	// scheduleWait bounds the wait for a schedule to be stored. It and a whole AckWait's progress leave the
	// message ours.
	scheduleWait = 5 * time.Second
	// failurePause is after how long a delivery comes again that failed for a reason of our own.
	failurePause = 5 * time.Second
)

// disposition is what is done with the message of a delivery. Only dispose acts on it.
type disposition struct {
	final bool          // the result is stored: acknowledge
	after time.Duration // otherwise: deliver it again after this long
}

var settled = disposition{final: true}

func retryIn(after time.Duration) disposition { return disposition{after: after} }

// deliver takes one delivery as far as possible now, and releases its slot. It owns conn.
func (d *Dispatcher) deliver(ctx context.Context, dl *delivery, p *connSlot, conn *callback.Conn) {
	a := &attempt{d: d, delivery: dl, slot: p, conn: conn}
	f := retryIn(failurePause)
	a.open()
	defer func() {
		if p := recover(); p != nil {
			// If a claim was made, this attempt is settled as unknown later.
			d.c.Log.Error().Str("sid", string(dl.ID)).Str("panic", fmt.Sprint(p)).
				Bytes("stack", debug.Stack()).Msg("a delivery panicked")
			a.closeConn()
		}
		a.releaseSlot()
		a.close()
		d.destinations.done(dl)
		d.dispose(dl, f)
	}()
	f = a.run(ctx)
}

// dispose is the only place that acknowledges. Acknowledgements are hints: the facts decide what a
// redelivery leads to. What waits long becomes a message schedule, so that the consumer need not carry it;
// where that cannot be stored, the consumer does.
func (d *Dispatcher) dispose(dl *delivery, f disposition) {
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
		Session: dl.ID, RequestedAttempt: dl.requested, Tries: dl.tries, Since: dl.due, At: d.c.Now().
				Add(after),
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
	slot        *connSlot
	conn        *callback.Conn
	freeAddress func() // makes room at the receiver's address; nil: nothing to do
	number      int
	// last is the result of the last attempt that was sent, or given up, and releases how many were released
	// since.
	last     *sessions.Result
	releases int

	contact contact
	span    trace.Span // nil: not traced
}

// run keeps the order that this package prescribes: facts, connection, claim, write, result.
func (a *attempt) run(ctx context.Context) disposition {
	s, err := a.decide(ctx)
	if err != nil {
		return a.fail("read the facts", err)
	}
	switch s.do {
	case send:
		a.number = s.attempt
		return a.send(ctx)
	case wait:
		return retryIn(s.wait)
	case release:
		a.number = s.attempt
		return a.release(callback.Answer{
			Class:  sessions.ClassLate,
			Detail: "the claim's acknowledgement was lost, so nothing was sent under it",
		})
	case settle:
		a.number = s.attempt
		return a.finish(a.withEarlierVerdict(a.newResult(abandoned(s))), 0)
	case drop:
		return settled
	default:
		return settled
	}
}

// decide reads the facts, except for a young completion that nobody can have tried: it has none, and if it
// had, the claim would conflict. An old one may come from a replayed stream; its receiver should not be
// dialled for nothing.
func (a *attempt) decide(ctx context.Context) (decision, error) {
	if a.first && a.d.now().Sub(a.CompletedAt) < natsconf.AckWait {
		return decide(a.Completion, nil, 0, a.d.now()), nil
	}
	attempts, err := a.d.c.Sessions.Attempts(ctx, a.ID)
	if err != nil {
		return decision{}, err
	}
	a.last, a.releases = lastResult(attempts)
	if n := len(attempts); n > 0 {
		// Another process would have to settle this claim as unknown.
		if last := attempts[n-1]; last.Result == nil && last.Claim.Worker == a.d.worker &&
			a.d.inFlight.isUnconfirmed(a.ID, n) {
			return decision{do: release, attempt: n}, nil
		}
	}
	s := decide(a.Completion, attempts, a.requested, a.d.now())
	if s.do == drop && a.requested == 0 && len(attempts) > 0 {
		return a.resendRequested(ctx, len(attempts)+1)
	}
	return s, nil
}

// resendRequested decides whether somebody has requested one more attempt: the request may have come with a
// message that this one replaced.
func (a *attempt) resendRequested(ctx context.Context, number int) (decision, error) {
	r, err := a.d.c.Sessions.ResendOf(ctx, a.ID, number)
	if err != nil || r == nil {
		return decision{do: drop}, err
	}
	a.requested, a.due = number, r.At
	return decision{do: send, attempt: number}, nil
}

// send prepares everything before the claim is made: the exact bytes, and a connection that is alive.
// Whatever fails until then has sent nothing. Where the destination's connections are all in use, and it
// sends so fast that one will be free in a moment, the claim goes ahead of the connection, and is released
// should none come.
func (a *attempt) send(ctx context.Context) disposition {
	if a.Lost {
		return a.notSent(ctx, &callback.NotSent{Class: sessions.ClassLost})
	}
	if f, ok := a.sendToListener(ctx); ok {
		return f
	}
	request, notSent := a.prepare()
	if notSent == nil && a.slot.held {
		notSent = a.connect(ctx)
	}
	if notSent != nil {
		return a.notSent(ctx, notSent)
	}
	crashpoint.Reach(crashpoint.Connected)
	claim := a.newClaim()
	if f, ok := a.claim(ctx, claim); !ok {
		return f
	}
	if !a.slot.held {
		if unused := a.connectClaimed(ctx); unused != nil {
			return a.release(*unused)
		}
	}
	if !a.d.c.Now().Before(claim.Deadline) {
		return a.release(callback.Answer{
			Class: sessions.ClassLate, Detail: "the claim's deadline passed before the first byte",
		})
	}
	return a.conclude(a.post(ctx, request))
}

// post sends the request, once, and reads the answer.
func (a *attempt) post(ctx context.Context, request callback.Request) callback.Answer {
	done := a.part("POST", trace.SpanKindClient)
	answer := a.conn.Send(ctx, request)
	done(attribute.String("http.request.method", http.MethodPost),
		attribute.Int("http.response.status_code", answer.Status),
		attribute.String("server.address", a.target.HostPort()),
		tracing.Verdict.String(string(answer.Verdict)), tracing.Class.String(string(answer.Class)))
	return answer
}

// fail ends this try for an internal reason.
func (a *attempt) fail(doing string, err error) disposition {
	a.markSpan("", "trouble")
	a.d.c.Log.Warn().Err(err).Str("sid", string(a.ID)).Str("account", a.Account).Str("doing", doing).
		Msg("a delivery has to wait")
	return retryIn(failurePause)
}
