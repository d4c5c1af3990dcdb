package edge

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

func startAdmin(t *testing.T, checks []Check, reg *prometheus.Registry) *Server {
	t.Helper()
	s, _ := startServer(t, ServerConfig{
		Name: "admin", Listen: "127.0.0.1:0", Handler: NewAdmin(checks, reg, nil), Log: zerolog.Nop(),
		WriteTimeout: AdminWriteTimeout,
	})
	return s
}

func mustFetch(t *testing.T, s *Server, path string) answer {
	t.Helper()
	a, err := fetch(t, s, path)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestReadiness(t *testing.T) {
	var away atomic.Bool
	s := startAdmin(t, []Check{
		{Name: "keys", Check: func(context.Context) (string, error) { return "2 known", nil }},
		{Name: "jetstream", Check: func(context.Context) (string, error) {
			if away.Load() {
				return "", errors.New("no connection")
			}
			return "", nil
		}},
	}, prometheus.NewRegistry())
	const well = `{"ready":true,"checks":[{"name":"keys","ok":true,"state":"2 known"},{"name":"jetstream","ok":true}]}`
	const ill = `{"ready":false,"checks":[{"name":"keys","ok":true,"state":"2 known"},{"name":"jetstream","ok":false,"reason":"no connection"}]}`
	for _, row := range []struct {
		away   bool
		status int
		body   string
	}{{false, http.StatusOK, well}, {true, http.StatusServiceUnavailable, ill},
		{false, http.StatusOK, well}} {
		away.Store(row.away)
		if a := mustFetch(t, s, pathReady); a.status != row.status || a.body != row.body ||
			a.header.Get("Content-Type") != "application/json" {
			t.Errorf("away %v: %d %s", row.away, a.status, a.body)
		}
		if a := mustFetch(t, s, pathLive); a.status != http.StatusOK || a.body != `{"live":true}` {
			t.Errorf("live: %d %s", a.status, a.body)
		}
	}
}

// What no other process fares better with is told, and turns no requests away.
func TestAdvisoryChecks(t *testing.T) {
	s := startAdmin(t, []Check{
		{Name: "keys", Check: func(context.Context) (string, error) { return "2 known", nil }},
		{Name: "network a", Check: func(context.Context) (string, error) {
			return "since noon",
				errors.New("no answer")
		}, Advisory: true},
	}, prometheus.NewRegistry())
	const want = `{"ready":true,"checks":[{"name":"keys","ok":true,"state":"2 known"},{"name":"network a","ok":false,"advisory":true,"state":"since noon","reason":"no answer"}]}`
	if a := mustFetch(t, s, pathReady); a.status != http.StatusOK || a.body != want {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// A check that hangs is told apart from those that are well, and does not hang the probe.
func TestReadinessDoesNotHang(t *testing.T) {
	hang := func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() }
	began := time.Now()
	docs := ask(deadline(t, 50*time.Millisecond), []Check{
		{Name: "hangs", Check: hang},
		{Name: "well", Check: func(context.Context) (string, error) { return "2 known", nil }},
		{Name: "hangs too", Check: hang},
	})
	if docs[0].OK || docs[0].Reason == "" || !docs[1].OK || docs[2].OK || docs[2].Name != "hangs too" {
		t.Errorf("checks = %+v", docs)
	}
	if took := time.Since(began); took > checkTimeout {
		t.Errorf("took %s", took)
	}
}

func deadline(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestMetricsAndProfiles(t *testing.T) {
	reg := prometheus.NewRegistry()
	if _, err := newMetrics(reg); err != nil {
		t.Fatal(err)
	}
	s := startAdmin(t, nil, reg)
	if a := mustFetch(t, s, pathMetrics); a.status != http.StatusOK ||
		!strings.Contains(a.body, "\nverifyd_http_requests_in_flight 0\n") {
		t.Errorf("metrics: %d %.200s", a.status, a.body)
	}
	for _, path := range []string{
		"", "goroutine?debug=1", "heap", "symbol", "profile?seconds=1", "trace?seconds=0.01",
	} {
		if a := mustFetch(t, s, pathPprof+path); a.status != http.StatusOK || a.body == "" {
			t.Errorf("%s: %d %.200s", path, a.status, a.body)
		}
	}
	for path, want := range map[string]int{
		"/": http.StatusNotFound, pathInit: http.StatusNotFound, pathReady: http.StatusOK,
		pathPprof + "cmdline": http.StatusNotFound, "/debug/vars": http.StatusNotFound,
	} {
		if a := mustFetch(t, s, path); a.status != want {
			t.Errorf("%s: %d, want %d", path, a.status, want)
		}
	}
	if _, err := newMetrics(reg); err == nil {
		t.Error("the same metrics were registered twice")
	}
}

// A name that is not the server's own may be a page's from anywhere, which had it lead here: it reads and
// changes nothing. What a load balancer asks by any name is answered, and says nothing else.
func TestOtherNamesAreNotAnswered(t *testing.T) {
	levels := &levelsForTest{}
	h := NewAdmin(nil, prometheus.NewRegistry(), levels, "metrics.internal:9090")
	ask := func(method, host, path string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, http.NoBody)
		r.Host = host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	for _, path := range []string{
		pathReady, pathMetrics, pathPprof, pathPprof + "goroutine?debug=2", pathPprof + "cmdline",
		pathLogLevel, "/",
	} {
		for _, host := range []string{"evil.example", "evil.example:9090", "127.0.0.1.evil.example"} {
			w := ask(http.MethodGet, host, path)
			if w.Code != http.StatusMisdirectedRequest ||
				w.Header().Get("Content-Type") != "application/problem+json" ||
				!strings.Contains(w.Body.String(), "VERIFYD_ADMIN_NAMES") ||
				!strings.Contains(w.Body.String(), host) {
				t.Errorf("%s of %s: %d %s", path, host, w.Code, w.Body)
			}
		}
	}
	if w := ask(http.MethodPut, "evil.example",
		pathLogLevel+"?level=trace"); w.Code != http.StatusMisdirectedRequest || levels.set != 0 {
		t.Errorf("the log's level was set %d times: %d", levels.set, w.Code)
	}
	for _, host := range []string{
		"127.0.0.1:9090", "localhost", "[::1]:9090", "metrics.internal", "METRICS.internal:1",
	} {
		if w := ask(http.MethodGet, host, pathReady); w.Code != http.StatusOK {
			t.Errorf("%s: %d %s", host, w.Code, w.Body)
		}
	}
	if w := ask(http.MethodGet, "edge-1:9090", pathLive); w.Code != http.StatusOK {
		t.Errorf("%s by another name: %d", pathLive, w.Code)
	}
}

type levelsForTest struct{ set int }

func (*levelsForTest) Level() (string, time.Time) { return "info", time.Time{} }

func (l *levelsForTest) SetLevel(string, time.Duration) error {
	l.set++
	return nil
}
