// Package trace sends the spans of traced sessions to a collector, by OTLP over HTTP. Nothing waits for it:
// spans that the collector does not accept in time are dropped and counted.
package trace

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

const (
	// maxHeld bounds the spans that wait for the collector, about 1 KiB each: those of some hundred sessions
	// a second for several seconds.
	maxHeld = 4096
	// maxBatch is how many spans go in one request, and batchEvery how long a smaller batch waits for more.
	maxBatch   = 512
	batchEvery = 2 * time.Second
	// sendTimeout bounds one request to the collector with its repeats, and stopTimeout the last one at a
	// stop.
	sendTimeout = 10 * time.Second
	stopTimeout = 5 * time.Second
	// maxIdle is how long an unused connection to the collector is kept.
	maxIdle = time.Minute
	// tracesPath is where OTLP/HTTP accepts spans (OTLP 1.x, "OTLP/HTTP Request").
	tracesPath = "/v1/traces"
)

// Config configures where spans are sent.
type Config struct {
	Endpoint *url.URL          // base of the collector, http or https; /v1/traces is added
	Headers  map[string]string // sent with each request, for the collector's authentication
	RootCAs  *x509.CertPool    // of the collector's certificate; nil: the system's
	// VerifyConnection is called in each TLS handshake with it, as that of a tls.Config.
	VerifyConnection func(tls.ConnectionState) error
	// Share is the fraction of sessions that are traced, above 0 up to 1. It is decided at the session's
	// start.
	Share   float64
	Version string // of this build
	Roles   []string
	Log     zerolog.Logger
	Metrics prometheus.Registerer
}

// Exporter is the actor that sends spans.
type Exporter struct {
	provider  *sdktrace.TracerProvider
	transport *http.Transport
	abort     context.CancelFunc // cancels the current request to the collector, and those after it
}

// New returns an exporter. The library starts a goroutine, which ends when Serve does, so the caller must run
// Serve.
func New(c Config) (*Exporter, error) {
	transport := newTransport(c)
	exporter, err := otlptracehttp.New(context.Background(),
		otlptracehttp.WithEndpointURL(tracesURL(c)),
		otlptracehttp.WithHeaders(c.Headers),
		otlptracehttp.WithTimeout(sendTimeout),
		otlptracehttp.WithHTTPClient(&http.Client{Timeout: sendTimeout, Transport: transport}),
	)
	if err != nil {
		return nil, fmt.Errorf("set up the export of spans: %w", err)
	}
	life, abort := context.WithCancel(context.Background())
	g := newGate(life, exporter, c.Log)
	c.Metrics.MustRegister(g.spans)
	return &Exporter{transport: transport, abort: abort, provider: sdktrace.NewTracerProvider(
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(c.Share))),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "verifyd"), attribute.String("service.version", c.Version),
			attribute.StringSlice("verifyd.roles", c.Roles),
		)),
		sdktrace.WithSpanProcessor(g),
	)}, nil
}

// Tracer returns the tracer. It may be used before and after Serve; spans after it are dropped.
func (s *Exporter) Tracer() trace.Tracer { return s.provider.Tracer("verifyd") }

// Serve waits until ctx ends, and then sends what is left, for a few seconds.
func (s *Exporter) Serve(ctx context.Context) error {
	<-ctx.Done()
	late := time.AfterFunc(stopTimeout, s.abort)
	defer late.Stop()
	// it waits for what it started; what could not be sent is counted
	_ = s.provider.Shutdown(context.WithoutCancel(ctx))
	s.abort()
	s.transport.CloseIdleConnections()
	return ctx.Err()
}

// gate counts the outcome of each span, and admits no more of them than the library's queue holds, which
// would drop the rest silently.
type gate struct {
	sdktrace.SpanProcessor // the library's, which batches

	life  context.Context //nolint:containedctx // exports live as long as the actor, whoever requests them
	to    sdktrace.SpanExporter
	held  atomic.Int64
	log   zerolog.Logger
	spans *prometheus.CounterVec
}

func newGate(life context.Context, to sdktrace.SpanExporter, log zerolog.Logger) *gate {
	g := &gate{life: life, to: to, log: log, spans: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "verifyd_trace_spans_total",
		Help: "Spans by what became of them: exported; failed, not taken by the collector; dropped, " +
			"since too many waited.",
	}, []string{"outcome"})}
	g.SpanProcessor = sdktrace.NewBatchSpanProcessor(exit{g},
		sdktrace.WithMaxQueueSize(maxHeld), sdktrace.WithMaxExportBatchSize(maxBatch),
		sdktrace.WithBatchTimeout(batchEvery), sdktrace.WithExportTimeout(sendTimeout))
	return g
}

// OnEnd accepts a span that has ended.
func (g *gate) OnEnd(s sdktrace.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	if g.held.Add(1) > maxHeld {
		g.held.Add(-1)
		g.spans.WithLabelValues("dropped").Inc()
		return
	}
	g.SpanProcessor.OnEnd(s)
}

// exit is the exporter that the library calls.
type exit struct{ g *gate }

// ExportSpans never returns an error to the library, which would call a global handler.
func (e exit) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	defer e.g.held.Add(-int64(len(spans)))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.g.life, cancel)()
	if err := e.g.to.ExportSpans(ctx, spans); err != nil {
		e.g.spans.WithLabelValues("failed").Add(float64(len(spans)))
		e.g.log.Warn().Str("cause", cause(err)).Int("spans", len(spans)).Msg("spans could not be sent")
		return nil
	}
	e.g.spans.WithLabelValues("exported").Add(float64(len(spans)))
	return nil
}

// Shutdown closes the exporter.
func (e exit) Shutdown(ctx context.Context) error { return e.g.to.Shutdown(ctx) }

// cause returns why a request to the collector failed, without the collector's URL, which may hold a
// password.
func cause(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "it did not answer in time"
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err.Error()
	}
	return err.Error()
}
