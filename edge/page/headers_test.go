package page

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestPlainSources(t *testing.T) {
	for name, tc := range map[string]struct {
		https  bool
		origin string
		want   string
	}{
		"https network":           {true, "https://id.example.com", ""},
		"dev network":             {false, "http://127.0.0.1:9000", "http://127.0.0.1:9000"},
		"dev network under https": {true, "http://localhost:9000", "http://localhost:9000"},
		"not known, under https":  {true, "", ""},
		"not known":               {false, "", "http://localhost:* http://127.0.0.1:*"},
	} {
		if got := strings.Join(PlainSources(tc.origin, tc.https), " "); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// A client that has a page gets 304, and the page again once it has changed.
func TestFixedIsFetchedOnce(t *testing.T) {
	ask := func(h http.Handler, method, tag string) *http.Response {
		q := httptest.NewRequestWithContext(t.Context(), method, "/", nil)
		q.Header.Set("If-None-Match", tag)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, q)
		return w.Result()
	}
	one := Fixed("text/html; charset=utf-8", "no-cache", []byte("one"), "script-src 'self'")
	two := Fixed("text/html; charset=utf-8", "no-cache", []byte("two"))
	first := ask(one, http.MethodGet, "")
	tag := first.Header.Get("ETag")
	if first.StatusCode != http.StatusOK || first.ContentLength != 3 || tag == "" ||
		!strings.HasSuffix(first.Header.Get("Content-Security-Policy"), "; script-src 'self'") {
		t.Errorf("%d %v", first.StatusCode, first.Header)
	}
	if head := ask(one, http.MethodHead, ""); head.StatusCode != http.StatusOK || head.ContentLength != 3 {
		t.Errorf("HEAD: %d %v", head.StatusCode, head.Header)
	}
	if again := ask(one, http.MethodGet, tag); again.StatusCode != http.StatusNotModified {
		t.Errorf("again: %d", again.StatusCode)
	}
	if changed := ask(two, http.MethodGet, tag); changed.StatusCode != http.StatusOK {
		t.Errorf("changed: %d", changed.StatusCode)
	}
}
