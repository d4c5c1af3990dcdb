package trace_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"verifyd/cmd/verifyd/trace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A collector that accepts nothing costs a bounded amount of memory: further spans are dropped and counted,
// and no span is missing from the counts.
func TestEverySpanIsCounted(t *testing.T) {
	release := make(chan struct{})
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-release
		w.WriteHeader(http.StatusBadRequest) // it accepts none of them, and they must not be sent again
	}))
	defer collector.Close()
	at, err := url.Parse(collector.URL)
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	s, err := trace.New(trace.Config{Endpoint: at, Share: 1, Metrics: registry, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Serve(ctx) }()
	tracer := s.Tracer()
	for range 5000 {
		_, span := tracer.Start(t.Context(), "span")
		span.End()
	}
	close(release)
	cancel()
	<-done
	if err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP verifyd_trace_spans_total Spans by what became of them: exported; failed, not taken by the collector; dropped, since too many waited.
# TYPE verifyd_trace_spans_total counter
verifyd_trace_spans_total{outcome="dropped"} 904
verifyd_trace_spans_total{outcome="failed"} 4096
`)); err != nil {
		t.Error(err)
	}
}

// The collector's text is not printed, and the error is clear, without the URL.
func TestProbeSpeaksForItself(t *testing.T) {
	release := make(chan struct{})
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/silent") {
			<-release
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn,
			"HTTP/1.1 403 \x1b[2Jall is well\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		_ = conn.Close()
	}))
	defer collector.Close()
	defer close(release)
	at, err := url.Parse(collector.URL)
	if err != nil {
		t.Fatal(err)
	}
	at.User = url.UserPassword("olga", "hunter2")
	if err := trace.Probe(t.Context(), trace.Config{Endpoint: at}); err == nil ||
		err.Error() != "the collector answers 403 Forbidden to /v1/traces" {
		t.Errorf("a status with a text of its own: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := trace.Probe(ctx, trace.Config{Endpoint: at.JoinPath("silent")}); err == nil ||
		err.Error() != "ask the collector: it did not answer in time" {
		t.Errorf("a silent collector: %v", err)
	}
}
