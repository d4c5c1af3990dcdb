package config

import (
	"net/url"
	"strings"

	"golang.org/x/net/http/httpguts"

	"verifyd/cmd/verifyd/trace"
	"verifyd/natsconf/certificate"
)

// traceSettings configure where the spans of sessions are sent. The standard variables of OpenTelemetry are
// read too.
type traceSettings struct {
	TraceEndpoint  string  `env:"VERIFYD_TRACE_ENDPOINT,OTEL_EXPORTER_OTLP_ENDPOINT" help:"Collector that spans of sessions are sent to, by OTLP over HTTP, for example http://collector:4318; empty: nothing is traced."`
	TraceHeaders   string  `secret:"" env:"VERIFYD_TRACE_HEADERS,OTEL_EXPORTER_OTLP_HEADERS" help:"Header fields sent to the collector: name=value, separated by commas, with percent-encoded values."`
	TraceCAFile    string  `name:"trace-ca-file" env:"VERIFYD_TRACE_CA_FILE,OTEL_EXPORTER_OTLP_CERTIFICATE" help:"Extra PEM roots for the certificate of the collector."`
	TraceShare     float64 `default:"1" help:"Share of the sessions that are traced, above 0 and up to 1."`
	TraceCallbacks bool    `help:"Callbacks of traced sessions carry their trace context (traceparent) to the receiver."`
}

// config checks the settings; nil: no tracing.
func (s traceSettings) config(f *Faults, met *certificate.Met) *trace.Config {
	if s.TraceEndpoint == "" {
		if s.TraceCallbacks {
			f.Add("trace-callbacks", "set, but nothing is traced",
				"set VERIFYD_TRACE_ENDPOINT too, or leave this out")
		}
		return nil
	}
	c := &trace.Config{
		Share: s.TraceShare, RootCAs: Roots(f, "trace-ca-file", s.TraceCAFile),
		VerifyConnection: met.Verify("collector"), Headers: map[string]string{},
	}
	u, err := url.Parse(s.TraceEndpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil ||
		u.RawQuery != "" || u.Fragment != "" {
		// The value is not shown: it may hold a password.
		f.Add("trace-endpoint", "it is not the http or https address of a collector without user, "+
			"query and fragment", "for example http://collector.internal:4318")
	}
	c.Endpoint = u
	if s.TraceShare <= 0 || s.TraceShare > 1 {
		f.Add("trace-share", "it is not above 0 and up to 1", "for example 0.1 for a tenth of the sessions")
	}
	for pair := range strings.SplitSeq(s.TraceHeaders, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		value, err := url.PathUnescape(value)
		switch {
		case s.TraceHeaders == "":
		case !ok || err != nil || !httpguts.ValidHeaderFieldName(name) ||
			!httpguts.ValidHeaderFieldValue(value):
			f.Add("trace-headers", "it is not a list of name=value with percent-encoded values",
				"for example authorization=Bearer%20TOKEN")
		default:
			c.Headers[name] = value
		}
	}
	return c
}
