package edge

import (
	"context"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"verifyd/sessions/tracing"
)

// Attributes of a request's span, by the semantic conventions of HTTP. The path is left out: it may hold a token.
const (
	attrMethod = attribute.Key("http.request.method")
	attrRoute  = attribute.Key("http.route")
	attrStatus = attribute.Key("http.response.status_code")
)

// traced is the part of a Line that tells a request to a tracer. A request is traced where it starts a session or is about one that is
// traced: only then is there a trace to which it belongs, and that is known when the session has been read. A traceparent that a client
// sends counts for nothing: anybody could have everything traced.
type traced struct {
	tracer  trace.Tracer // nil: nothing is traced
	started time.Time
	method  string
	span    trace.Span // nil until the request is known to belong to a trace
}

// begin opens the span of a request that starts a trace, and gives the context for what is done under it.
func (l *Line) begin(ctx context.Context) context.Context {
	if l.tracer == nil {
		return ctx
	}
	return l.open(ctx)
}

// Follow opens the span of a request that is about a session, under the session's Trace, and gives the context for what is done under
// it. Where the session is not traced, and from the second call on, no span is opened.
func (l *Line) Follow(ctx context.Context, traceparent string) context.Context {
	switch {
	case l.span != nil:
		return trace.ContextWithSpan(ctx, l.span)
	case l.tracer == nil || traceparent == "":
		return ctx
	default:
		return l.open(tracing.Under(ctx, traceparent))
	}
}

func (l *Line) open(ctx context.Context) context.Context {
	//nolint:spancheck // endSpan ends it
	ctx, l.span = l.tracer.Start(ctx, l.method+" "+l.route, trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(l.started))
	return ctx
}

// trace gives the id of the request's trace; empty where it is not traced.
func (l *Line) trace() string {
	if l.span == nil || !l.span.SpanContext().IsSampled() {
		return ""
	}
	return l.span.SpanContext().TraceID().String()
}

// endSpan ends the request's span with what its log line says.
func (l *Line) endSpan(status int) {
	if l.span == nil {
		return
	}
	l.span.SetAttributes(attrMethod.String(l.method), attrRoute.String(l.route), attrStatus.Int(status))
	for _, a := range []attribute.KeyValue{
		tracing.Session.String(string(l.Session)), tracing.Account.String(l.Account), tracing.Code.String(string(l.Code)),
	} {
		if a.Value.AsString() != "" {
			l.span.SetAttributes(a)
		}
	}
	if status >= http.StatusInternalServerError || status == 0 {
		l.span.SetStatus(codes.Error, string(l.Code)) // not the error's text, which is for the log
	}
	l.span.End()
}

// Step opens a span of one step of the request that ctx belongs to. done ends it with the word for how it ended, and nothing more: the
// text of an error may tell too much. Where the request is not traced it does nothing.
func Step(ctx context.Context, name string, kind trace.SpanKind, about ...attribute.KeyValue) (_ context.Context, done func(outcome string)) {
	l := LineOf(ctx)
	if l.span == nil {
		return ctx, func(string) {}
	}
	//nolint:spancheck // done ends it
	ctx, span := l.tracer.Start(trace.ContextWithSpan(ctx, l.span), name, trace.WithSpanKind(kind), trace.WithAttributes(about...))
	return ctx, func(outcome string) { //nolint:spancheck // the same
		if outcome != "" {
			span.SetAttributes(tracing.Outcome.String(outcome))
		}
		span.End()
	}
}

// stepOutcome is the word for how a step ended.
func stepOutcome(err error) string {
	if err != nil {
		return "failed"
	}
	return "done"
}
