// Package tracing carries the trace of a session through what is stored about it: from the request that
// starts it to the page that is opened minutes later, and from the completion to the dispatcher that sends
// it, on whatever machine. The trace context is in a header of the session's record and of its completion, as
// W3C Trace Context defines it (https://www.w3.org/TR/trace-context/, §3.2), and only if the session is
// traced.
//
// What spans may hold: ids of sessions, accounts and networks, words of the domain, hosts, statuses and
// times. No text of an integrator or a user, no token, no address of a user, no path or query of a URL.
package tracing

import (
	"context"
	"strings"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Header is the header field of a trace context, in NATS messages and in callbacks.
const Header = "traceparent"

// The attributes of spans that are this service's own; others are OpenTelemetry's semantic conventions.
const (
	Session = attribute.Key("verifyd.sid")
	Account = attribute.Key("verifyd.account")
	Network = attribute.Key("verifyd.network")
	Attempt = attribute.Key("verifyd.attempt")
	Outcome = attribute.Key("verifyd.outcome")
	Verdict = attribute.Key("verifyd.verdict")
	Class   = attribute.Key("verifyd.class")
	Code    = attribute.Key("verifyd.code")
)

// parentBytes is the length of a traceparent of version 00 (§3.2.2).
const parentBytes = 55

// Parent formats the span that ctx carries as a traceparent; empty if it carries none.
func Parent(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[Header]
}

// WithParent returns a context whose next span is a child of a traceparent's. A text that cannot be read is
// no parent.
func WithParent(ctx context.Context, traceparent string) context.Context {
	if strings.HasPrefix(traceparent, "00-") && len(traceparent) != parentBytes {
		return ctx // OpenTelemetry accepts a hyphen after it
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{Header: traceparent})
}

// Inject puts a traceparent into a message, unless it is empty.
func Inject(m *nats.Msg, traceparent string) {
	if traceparent == "" {
		return
	}
	if m.Header == nil {
		m.Header = make(nats.Header, 1)
	}
	m.Header[Header] = []string{traceparent}
}

// Extract returns the traceparent of a message; empty if it has none.
func Extract(h nats.Header) string {
	if values := h[Header]; len(values) == 1 {
		return values[0]
	}
	return ""
}

// ID returns the trace that ctx's span belongs to, if it is sampled, for exemplars and log lines; empty
// otherwise.
func ID(ctx context.Context) string {
	if c := trace.SpanContextFromContext(ctx); c.IsSampled() {
		return c.TraceID().String()
	}
	return ""
}
