package dispatcher

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"verifyd/dispatcher/callback"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
	"verifyd/sessions/timeline"
	"verifyd/sessions/tracing"
)

// span is the span of a delivery that is traced, under the completion's. A nil one does nothing.
type span struct {
	trace.Span

	tracer   trace.Tracer
	receiver bool // its receiver gets the trace context
	number   int  // the attempt; 0: none yet
}

// newSpan opens the span of a completion's delivery; nil: it is not traced. It ends with end.
func (d *shared) newSpan(c sessions.Completion) *span {
	if d.c.Tracer == nil || c.Trace == "" {
		return nil
	}
	s := &span{tracer: d.c.Tracer, receiver: d.c.TraceReceivers}
	//nolint:spancheck // end ends it
	_, s.Span = d.c.Tracer.Start(tracing.WithParent(context.Background(), c.Trace), "deliver callback",
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(tracing.Session.String(string(c.ID)), tracing.Account.String(c.Account)))
	return s
}

// context returns a context that carries the span, if there is one.
func (s *span) context() context.Context {
	if s == nil {
		return context.Background()
	}
	return trace.ContextWithSpan(context.Background(), s.Span)
}

// part opens the span of one part of the delivery; done ends it.
func (s *span) part(name string, kind trace.SpanKind) (done func(about ...attribute.KeyValue)) {
	if s == nil {
		return func(...attribute.KeyValue) {}
	}
	_, part := s.tracer.Start(s.context(), name, trace.WithSpanKind(kind),
		trace.WithAttributes(tracing.Attempt.Int(s.number)))
	return func(about ...attribute.KeyValue) {
		part.SetAttributes(about...)
		part.End()
	}
}

// mark records on the span how this try ended.
func (s *span) mark(verdict facts.Verdict, class failure.Class) {
	if s == nil {
		return
	}
	s.SetAttributes(tracing.Attempt.Int(s.number), tracing.Verdict.String(string(verdict)),
		tracing.Class.String(string(class)))
	if verdict != facts.VerdictDelivered {
		s.SetStatus(codes.Error, string(class))
	}
}

// id returns the trace of the delivery, if it is sampled; empty otherwise.
func (s *span) id() string { return tracing.ID(s.context()) }

// parent returns the trace context that a receiver gets; empty: none.
func (s *span) parent() string {
	if s == nil || !s.receiver {
		return ""
	}
	return tracing.Parent(s.context())
}

func (s *span) end() {
	if s != nil {
		s.End()
	}
}

// setNumber names the attempt.
func (s *span) setNumber(n int) {
	if s != nil {
		s.number = n
	}
}

// reportNotSent logs that nothing was sent, and that the next try follows after a pause.
func (d *shared) reportNotSent(c sessions.Completion, number, tries int, n *callback.NotSent,
	pause time.Duration) {
	d.c.Log.Info().Str("sid", string(c.ID)).Str("account", c.Account).Int("attempt", number).
		Int("tries", tries).
		Str("class", string(n.Class)).Str("detail", n.Detail).Dur("took", n.Timing.Total).
		Dur("next", pause).Msg("callback not sent")
	d.c.Sessions.Emit(timeline.Event{
		Name: timeline.EventNotSent, Session: c.ID, At: d.now(), Attempt: number, Tries: tries,
		Class: n.Class, Detail: n.Detail, Address: n.Address, Timing: n.Timing, Next: pause,
	}.Of(c.Session))
}

// reportResult counts how an attempt ended, and writes its one wide line. err is not nil if another process
// has stored the result.
func (d *shared) reportResult(c sessions.Completion, r facts.Result, err error, traceID string) {
	d.metrics.attempts.WithLabelValues(string(r.Verdict), string(r.Class)).Inc()
	line := d.c.Log.Info().Str("sid", string(c.ID)).Str("account", c.Account).Int("attempt", r.Number).
		Str("verdict", string(r.Verdict)).Str("class", string(r.Class)).Int("status", r.Status).
		Str("address", r.Address).
		Dur("took", r.Timing.Total).Dur("since_completion", r.At.Sub(c.CompletedAt))
	if r.Detail != "" {
		line = line.Str("detail", r.Detail)
	}
	if err != nil {
		line = line.Str("settled_by", r.By)
	}
	if traceID != "" {
		line = line.Str("trace_id", traceID)
	}
	line.Msg("callback attempt")
}

// reportUnstorable logs a result in whose place there is a message that no build has written.
func (a *attempt) reportUnstorable(r, existing facts.Result) {
	if existing.Class == failure.Unreadable && r.Class != failure.Unreadable {
		a.c.Log.Error().Str("sid", string(a.ID)).Int("attempt", r.Number).
			Str("verdict", string(r.Verdict)).Int("status", r.Status).
			Msg("a result cannot be stored, since the message in its place cannot be read; the attempt is " +
				"shown as unknown")
	}
}

// notify calls OnAttempt. Tests, and URLs that the policy refuses, show nothing about a receiver.
func (a *attempt) notify(verdict facts.Verdict, class failure.Class, status int, again bool) {
	refused := a.barred != nil && a.barred.Class == failure.RefusedAddress
	if a.c.OnAttempt != nil && !a.Test && !refused {
		a.c.OnAttempt(AttemptEnd{
			Session: a.ID, Account: a.Account, Receiver: a.target.HostPort(), Verdict: verdict, Class: class,
			Status: status, Again: again,
		})
	}
}
