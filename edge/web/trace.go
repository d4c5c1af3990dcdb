package web

import (
	"context"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"verifyd/sessions/tracing"
)

// Attributes of a request's span, by the semantic conventions of HTTP. The path is left out: it may hold a
// token.
const (
	attrMethod = attribute.Key("http.request.method")
	attrRoute  = attribute.Key("http.route")
	attrStatus = attribute.Key("http.response.status_code")
)

// traced is the part of a RequestEvent that reports a request to a tracer. A request is traced if it starts a
// session or is about one that is traced: only then is there a trace to which it belongs, and that is known
// when the session has been read. A traceparent that a client sends is ignored: otherwise anybody could make
// the service trace everything.
type traced struct {
	tracer  trace.Tracer // nil: nothing is traced
	started time.Time
	method  string
	span    trace.Span // nil until the request is known to belong to a trace
}

// Begin opens the span of a request that starts a trace, and returns the context for what is done under it.
func (e *RequestEvent) Begin(ctx context.Context) context.Context {
	if e.tracer == nil {
		return ctx
	}
	return e.open(ctx)
}

// Follow opens the span of a request that is about a session, under the session's Trace, and returns the
// context for what is done under it. If the session is not traced, and from the second call on, no span is
// opened.
func (e *RequestEvent) Follow(ctx context.Context, traceparent string) context.Context {
	switch {
	case e.span != nil:
		return trace.ContextWithSpan(ctx, e.span)
	case e.tracer == nil || traceparent == "":
		return ctx
	default:
		return e.open(tracing.WithParent(ctx, traceparent))
	}
}

func (e *RequestEvent) open(ctx context.Context) context.Context {
	//nolint:spancheck // endSpan ends it
	ctx, e.span = e.tracer.Start(ctx, e.method+" "+e.Route, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithTimestamp(e.started))
	return ctx
}

// trace returns the id of the request's trace; empty if it is not traced.
func (e *RequestEvent) trace() string {
	if e.span == nil || !e.span.SpanContext().IsSampled() {
		return ""
	}
	return e.span.SpanContext().TraceID().String()
}

// endSpan ends the request's span with the values of its log line.
func (e *RequestEvent) endSpan(status int) {
	if e.span == nil {
		return
	}
	e.span.SetAttributes(attrMethod.String(e.method), attrRoute.String(e.Route), attrStatus.Int(status))
	for _, a := range []attribute.KeyValue{
		tracing.Session.String(string(e.Session)), tracing.Account.String(e.Account),
		tracing.Code.String(string(e.Code)),
	} {
		if a.Value.AsString() != "" {
			e.span.SetAttributes(a)
		}
	}
	if status >= http.StatusInternalServerError || status == 0 {
		e.span.SetStatus(codes.Error, string(e.Code)) // not the error's text, which is for the log
	}
	e.span.End()
}

// Step opens a span of one step of the request that ctx belongs to. done ends it with the word for how it
// ended, and nothing more: the text of an error may reveal too much. If the request is not traced it does
// nothing.
func Step(ctx context.Context, name string, kind trace.SpanKind,
	about ...attribute.KeyValue) (_ context.Context, done func(outcome string)) {
	l := EventFrom(ctx)
	if l.span == nil {
		return ctx, func(string) {}
	}
	//nolint:spancheck // done ends it
	ctx, span := l.tracer.Start(trace.ContextWithSpan(ctx, l.span), name, trace.WithSpanKind(kind),
		trace.WithAttributes(about...))
	return ctx, func(outcome string) { //nolint:spancheck // the same
		if outcome != "" {
			span.SetAttributes(tracing.Outcome.String(outcome))
		}
		span.End()
	}
}

// StepOutcome is the word for how a step ended.
func StepOutcome(err error) string {
	if err != nil {
		return "failed"
	}
	return "done"
}
