package main

import (
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/demo"
	"verifyd/cmd/verifyd/trace"
	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
)

// collected is an OTLP collector that keeps what it gets.
type collected struct {
	server *httptest.Server

	mu    sync.Mutex
	raw   strings.Builder
	spans []*otlp.Span
}

func collect(t *testing.T) *collected {
	t.Helper()
	c := &collected{}
	c.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var request collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &request)
		}
		if err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Authorization") != "Bearer of spans" {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.raw.Write(body)
		for _, resource := range request.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				c.spans = append(c.spans, scope.GetSpans()...)
			}
		}
	}))
	t.Cleanup(c.server.Close)
	return c
}

// to makes a program send its spans to the collector.
func (c *collected) to(t *testing.T) func(*config.Config) {
	t.Helper()
	return func(cfg *config.Config) {
		at := must[*url.URL](t)(url.Parse(c.server.URL))
		cfg.Traces = &trace.Config{
			Endpoint: at, Headers: map[string]string{"Authorization": "Bearer of spans"}, Share: 1,
		}
	}
}

// paths returns each span as the names from the root of its trace down, for the session of sid; the test
// fails where a span belongs to another trace than the first, or where its parent is missing.
func (c *collected) paths(t *testing.T, sid string) (traceID string, paths []string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	byID := map[string]*otlp.Span{}
	for _, s := range c.spans {
		byID[string(s.GetSpanId())] = s
		for _, a := range s.GetAttributes() {
			if a.GetKey() == "verifyd.sid" && a.GetValue().GetStringValue() == sid {
				traceID = hex.EncodeToString(s.GetTraceId())
			}
		}
	}
	for _, s := range c.spans {
		if hex.EncodeToString(s.GetTraceId()) != traceID {
			continue
		}
		path := s.GetName()
		for parent := s.GetParentSpanId(); len(parent) > 0; parent = byID[string(parent)].GetParentSpanId() {
			if byID[string(parent)] == nil {
				t.Fatalf("the parent of %s was not sent", path)
			}
			path = byID[string(parent)].GetName() + " > " + path
		}
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return traceID, slices.Compact(paths)
}

// One trace from the start of a session over its page, the identity network and the completion to the POST,
// though an edge and a dispatcher of their own share nothing but NATS.
func TestOneTraceFromInitToPost(t *testing.T) {
	t.Parallel()
	seen, external := collect(t), onExternal(t)
	edge := boot(t, external, seen.to(t), func(c *config.Config) { c.Dispatcher = false })
	dispatcher := boot(t, external, seen.to(t), func(c *config.Config) {
		c.Edge, c.TraceReceivers = false, true
		c.CallbackRoots, c.CallbackPolicy = edge.Config.CallbackRoots, edge.Config.CallbackPolicy
	})
	s := edge.begin(t)
	b := demo.NewBrowser()
	expectTitle(t, must[*demo.Page](t)(b.Press(t.Context(), atProvider(t, b, s.VerifyURL), "sign-in")),
		http.StatusOK, "You are verified")
	got := <-edge.inbox.got
	sid := edge.api().until(t, s.Session, "delivered").ID
	_, _, metrics := api{base: "http://" + edge.Admin}.open(t, "/metrics")
	dispatcher.stop()
	edge.stop()

	traceID, paths := seen.paths(t, sid)
	init := "POST /verify/init > store session"
	back := init + " > GET /signin/{network}/callback"
	deliver := back + " > complete session > deliver callback"
	want := []string{
		"POST /verify/init", "POST /verify/init > take quota", init,
		init + " > GET /", init + " > POST /signin",
		back, back + " > ask identity network", back + " > complete session",
		back + " > complete session > GET /", back + " > complete session > GET /sessions/{session}",
		deliver, deliver + " > connect", deliver + " > store claim", deliver + " > POST",
		deliver + " > store result",
	}
	slices.Sort(want)
	if !slices.Equal(paths, want) {
		t.Errorf("the trace is\n%s\nwant\n%s", strings.Join(paths, "\n"), strings.Join(want, "\n"))
	}
	if parent := strings.Split(got.Header.Get("Traceparent"), "-"); len(parent) != 4 || parent[1] != traceID {
		t.Errorf("the receiver got traceparent %q of trace %s", got.Header.Get("Traceparent"), traceID)
	}
	for where, text := range map[string]string{
		"the edge's log": edge.log.String(), "the dispatcher's log": dispatcher.log.String(),
		"the exemplars": string(metrics),
	} {
		if !strings.Contains(text, traceID) {
			t.Errorf("%s do not name the trace", where)
		}
	}
}

// open reads a page of the operators' server as Prometheus does.
func (a api) open(t *testing.T, path string) (int, http.Header, []byte) {
	t.Helper()
	q := must[*http.Request](t)(http.NewRequestWithContext(t.Context(), http.MethodGet, a.base+path,
		http.NoBody))
	q.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}
	response := must[*http.Response](t)(client.Do(q))
	defer response.Body.Close()
	return response.StatusCode, response.Header, must[[]byte](t)(io.ReadAll(response.Body))
}

// Without a collector nothing is stored with sessions and nothing reaches a receiver; a client's traceparent
// is ignored.
func TestNothingIsTracedUnasked(t *testing.T) {
	t.Parallel()
	r := boot(t, func(c *config.Config) { c.TraceReceivers = true })
	s := r.begin(t)
	b := demo.NewBrowser()
	must[*demo.Page](t)(b.Press(t.Context(), atProvider(t, b, s.VerifyURL), "sign-in"))
	if got := <-r.inbox.got; got.Header.Get("Traceparent") != "" {
		t.Errorf("the receiver got %q", got.Header.Get("Traceparent"))
	}
	sid := r.api().until(t, s.Session, "delivered").ID
	for stream, subject := range map[string]string{
		topology.BucketStream(topology.BucketSessions): topology.BucketSubject(topology.BucketSessions,
			"*."+sid),
		topology.StreamCompletions: "completion." + sid,
	} {
		var m *jetstream.RawStreamMsg
		var err error
		natstest.Await(t, stream+" answers", func() bool {
			m, err = r.Store.Conn.Next(t.Context(), stream, subject, 1)
			return !errors.Is(err, natsconf.ErrUnavailable)
		})
		if err != nil {
			t.Errorf("%s: %v", stream, err)
		} else if m.Header.Get("traceparent") != "" {
			t.Errorf("%s keeps %q", stream, m.Header.Get("traceparent"))
		}
	}
}

// A collector that is down, or accepts nothing, does no harm: sessions go through, its spans are counted, and
// the stop is bounded.
func TestFailingCollectorDoesNoHarm(t *testing.T) {
	t.Parallel()
	deaf := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then does a server notice that a client has gone
		<-r.Context().Done()
	}))
	t.Cleanup(func() { deaf.CloseClientConnections(); deaf.Close() })
	away := "http://" + natstest.Address(t)
	for name, at := range map[string]string{"takes nothing": deaf.URL, "is away": away} {
		t.Run(name, func(t *testing.T) {
			r := boot(t, func(c *config.Config) {
				c.Traces = &trace.Config{Endpoint: must[*url.URL](t)(url.Parse(at)), Share: 1}
			})
			s := r.begin(t)
			b := demo.NewBrowser()
			must[*demo.Page](t)(b.Press(t.Context(), atProvider(t, b, s.VerifyURL), "sign-in"))
			<-r.inbox.got
			r.api().until(t, s.Session, "delivered")
			r.stop()
			text := gathered(t, r)
			if !strings.Contains(text, `verifyd_trace_spans_total{outcome="failed"}`) {
				t.Errorf("nothing is counted as failed")
			}
		})
	}
}
