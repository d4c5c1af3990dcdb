package dispatcher

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"verifyd/sessions"
	"verifyd/sessions/tracing"
)

// open opens the span of a delivery that is traced, under the completion's. It ends with close.
func (a *attempt) open() {
	if a.d.c.Tracer == nil || a.Trace == "" {
		return
	}
	//nolint:spancheck // close ends it
	_, a.span = a.d.c.Tracer.Start(tracing.WithParent(context.Background(), a.Trace), "deliver callback",
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(tracing.Session.String(string(a.ID)), tracing.Account.String(a.Account)))
}

// under returns a context that carries the delivery's span, where there is one.
func (a *attempt) under(ctx context.Context) context.Context {
	if a.span == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, a.span)
}

// part opens the span of one part of the delivery; done ends it. Where the delivery is not traced it does
// nothing.
func (a *attempt) part(name string, kind trace.SpanKind) (done func(about ...attribute.KeyValue)) {
	if a.span == nil {
		return func(...attribute.KeyValue) {}
	}
	_, span := a.d.c.Tracer.Start(a.under(context.Background()), name, trace.WithSpanKind(kind),
		trace.WithAttributes(tracing.Attempt.Int(a.number)))
	return func(about ...attribute.KeyValue) {
		span.SetAttributes(about...)
		span.End()
	}
}

// markSpan puts on the delivery's span how this try ended.
func (a *attempt) markSpan(verdict sessions.Verdict, class sessions.Class) {
	if a.span == nil {
		return
	}
	a.span.SetAttributes(tracing.Attempt.Int(a.number), tracing.Verdict.String(string(verdict)),
		tracing.Class.String(string(class)))
	if verdict != sessions.VerdictDelivered {
		a.span.SetStatus(codes.Error, string(class))
	}
}

// traceID returns the trace of the delivery, where it is sampled; empty otherwise.
func (a *attempt) traceID() string { return tracing.ID(a.under(context.Background())) }

// traceparent is the trace context that the receiver gets; empty: none.
func (a *attempt) traceparent() string {
	if !a.d.c.TraceReceivers {
		return ""
	}
	return tracing.Parent(a.under(context.Background()))
}

func (a *attempt) close() {
	if a.span != nil {
		a.span.End()
	}
}
