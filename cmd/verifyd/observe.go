package main

import (
	"net/url"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/net/http/httpguts"

	"verifyd/cmd/verifyd/spans"
	"verifyd/edge"
)

// traceSettings say where the spans of sessions go. The standard variables of OpenTelemetry are taken too.
type traceSettings struct {
	TraceEndpoint  string  `env:"VERIFYD_TRACE_ENDPOINT,OTEL_EXPORTER_OTLP_ENDPOINT" help:"Collector that spans of sessions are sent to, by OTLP over HTTP: http://collector:4318; empty: nothing is traced."`
	TraceHeaders   string  `env:"VERIFYD_TRACE_HEADERS,OTEL_EXPORTER_OTLP_HEADERS" help:"Header fields sent to it, name=value with commas between and the values percent-encoded."`
	TraceCAFile    string  `name:"trace-ca-file" env:"VERIFYD_TRACE_CA_FILE,OTEL_EXPORTER_OTLP_CERTIFICATE" help:"Extra PEM roots for its certificate."`
	TraceShare     float64 `default:"1" help:"Part of the sessions that is traced, up to 1."`
	TraceCallbacks bool    `help:"Callbacks of traced sessions carry their trace context (traceparent) to the receiver."`
}

// config checks the settings; nil: nothing is traced.
func (s traceSettings) config(f *faults) *spans.Config {
	if s.TraceEndpoint == "" {
		if s.TraceCallbacks {
			f.add("trace-callbacks", "set, but nothing is traced", "set VERIFYD_TRACE_ENDPOINT too, or leave this out")
		}
		return nil
	}
	c := &spans.Config{Share: s.TraceShare, RootCAs: roots(f, "trace-ca-file", s.TraceCAFile), Headers: map[string]string{}}
	u, err := url.Parse(s.TraceEndpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		// The value is not shown: it may hold a password.
		f.add("trace-endpoint", "it is not the http or https address of a collector, without user, query and fragment", "for example http://collector.internal:4318")
	}
	c.Endpoint = u
	if s.TraceShare <= 0 || s.TraceShare > 1 {
		f.add("trace-share", "it is not above 0 and up to 1", "for example 0.1 for a tenth of the sessions")
	}
	for pair := range strings.SplitSeq(s.TraceHeaders, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		value, err := url.PathUnescape(value)
		switch {
		case s.TraceHeaders == "":
		case !ok || err != nil || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value):
			f.add("trace-headers", "it is not a list of name=value with percent-encoded values", "for example authorization=Bearer%20TOKEN")
		default:
			c.Headers[name] = value
		}
	}
	return c
}

// observe starts what shows others how the service does. It stops last, so that the end of everything else is seen.
func (p *Program) observe() error {
	build := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "verifyd_build_info", Help: "1, with the version of this build.", ConstLabels: prometheus.Labels{"version": versionText()},
	}, func() float64 { return 1 })
	p.registry.MustRegister(build)
	if p.c.journal != nil {
		p.c.journal.Measure(p.registry)
		p.add("journal", newActor("journal", p.c.journal))
	}
	if p.c.traces == nil {
		return nil
	}
	c := *p.c.traces
	c.Version, c.Roles, c.Log, c.Metrics = versionText(), p.roles(), p.c.log, p.registry
	s, err := spans.New(c)
	if err != nil {
		return err
	}
	p.spans = s
	p.add("spans", newActor("spans", s))
	return nil
}

// tracer gives what traces sessions; nil where nothing does.
func (p *Program) tracer() trace.Tracer {
	if p.spans == nil {
		return nil
	}
	return p.spans.Tracer()
}

func (p *Program) roles() (roles []string) {
	if p.c.edge {
		roles = append(roles, "edge")
	}
	if p.c.dispatch {
		roles = append(roles, "dispatcher")
	}
	return roles
}

// levels gives the log's level to the operators' server; nil where it cannot be changed.
func (p *Program) levels() edge.Levels {
	if p.c.journal == nil {
		return nil
	}
	return p.c.journal
}
