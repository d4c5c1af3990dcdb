package web

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestOnlyOwnNamesAreAnswered(t *testing.T) {
	const yes, no = http.StatusOK, http.StatusMisdirectedRequest
	h := OnlyOwnNames([]string{"Metrics.Internal", "edge-1:9090"},
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(no) }),
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(yes) }))
	for host, want := range map[string]int{
		"127.0.0.1": yes, "127.0.0.1:9090": yes, "10.0.0.7:80": yes, "[::1]": yes, "[::1]:9090": yes,
		"[fe80::1%eth0]:9090": yes, "": yes,
		"localhost": yes, "LOCALHOST:9090": yes, "localhost.:9090": yes,
		"metrics.internal": yes, "metrics.internal.:9090": yes, "edge-1": yes, "EDGE-1:1": yes,
		"evil.example": no, "evil.example:9090": no, "127.0.0.1.evil.example": no,
		"localhost.evil.example": no, "evil.localhost": no,
		"edge-2:9090": no, "x.metrics.internal": no, "127.0.0.1.": yes, "0x7f000001": no, "127.1": no,
		"localhost evil.example": no, "::1": yes,
	} {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.Host = host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%q: %d, want %d", host, w.Code, want)
		}
	}
}
