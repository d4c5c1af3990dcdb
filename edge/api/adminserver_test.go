package api

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"verifyd/edge/web"
)

func startAdmin(t *testing.T, checks []web.Check, reg *prometheus.Registry) *web.Server {
	t.Helper()
	s, _ := startServer(t, web.ServerConfig{
		Name: "admin", Listen: "127.0.0.1:0", Handler: web.NewAdmin(checks, reg, nil), Log: zerolog.Nop(),
		WriteTimeout: web.AdminWriteTimeout,
	})
	return s
}

func mustFetch(t *testing.T, s *web.Server, path string) answer {
	t.Helper()
	a, err := fetch(t, s, path)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestReadiness(t *testing.T) {
	var away atomic.Bool
	s := startAdmin(t, []web.Check{
		{Name: "keys", Check: func() (string, error) { return "2 known", nil }},
		{Name: "jetstream", Check: func() (string, error) {
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
		if a := mustFetch(t, s, "/readyz"); a.status != row.status || a.body != row.body ||
			a.header.Get("Content-Type") != "application/json" {
			t.Errorf("away %v: %d %s", row.away, a.status, a.body)
		}
		if a := mustFetch(t, s, "/livez"); a.status != http.StatusOK || a.body != `{"live":true}` {
			t.Errorf("live: %d %s", a.status, a.body)
		}
	}
}

// What is the same for every process is reported, and does not make the process unready.
func TestAdvisoryChecks(t *testing.T) {
	s := startAdmin(t, []web.Check{
		{Name: "keys", Check: func() (string, error) { return "2 known", nil }},
		{Name: "network a", Check: func() (string, error) {
			return "since noon",
				errors.New("no answer")
		}, Advisory: true},
	}, prometheus.NewRegistry())
	const want = `{"ready":true,"checks":[{"name":"keys","ok":true,"state":"2 known"},{"name":"network a","ok":false,"advisory":true,"state":"since noon","reason":"no answer"}]}`
	if a := mustFetch(t, s, "/readyz"); a.status != http.StatusOK || a.body != want {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestMetricsAndProfiles(t *testing.T) {
	reg := prometheus.NewRegistry()
	if _, err := web.New(web.Config{Metrics: reg}); err != nil {
		t.Fatal(err)
	}
	s := startAdmin(t, nil, reg)
	if a := mustFetch(t, s, "/metrics"); a.status != http.StatusOK ||
		!strings.Contains(a.body, "\nverifyd_http_requests_in_flight 0\n") {
		t.Errorf("metrics: %d %.200s", a.status, a.body)
	}
	for _, path := range []string{
		"", "goroutine?debug=1", "heap", "symbol", "profile?seconds=1", "trace?seconds=0.01",
	} {
		if a := mustFetch(t, s, "/debug/pprof/"+path); a.status != http.StatusOK || a.body == "" {
			t.Errorf("%s: %d %.200s", path, a.status, a.body)
		}
	}
	for path, want := range map[string]int{
		"/": http.StatusNotFound, pathInit: http.StatusNotFound, "/readyz": http.StatusOK,
		"/debug/pprof/" + "cmdline": http.StatusNotFound, "/debug/vars": http.StatusNotFound,
	} {
		if a := mustFetch(t, s, path); a.status != want {
			t.Errorf("%s: %d, want %d", path, a.status, want)
		}
	}
	if _, err := web.New(web.Config{Metrics: reg}); err == nil {
		t.Error("the same metrics were registered twice")
	}
}
