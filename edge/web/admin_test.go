package web

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A host name that is not the server's own may belong to a foreign page that made it resolve here: it reads
// and changes nothing. A load balancer's probes are answered under any name, and reveal nothing else.
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
