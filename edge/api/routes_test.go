package api

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"verifyd/edge/problem"
	"verifyd/edge/web"
)

func plain(status int, text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	})
}

func TestRoutesBelowAPrefix(t *testing.T) {
	t.Parallel()
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.PathValue("network"))
	})
	s := newService(t, func(c *Config) {
		c.BaseURL = "https://example.com/a/verify-me/"
		c.Routes = []web.Route{
			{Method: http.MethodGet, Path: "/", Name: "page", Handler: plain(http.StatusOK, "page")},
			{Method: http.MethodPost, Path: "/signin", Name: "sign_in",
				Handler: plain(http.StatusSeeOther, "")},
			{
				Method: http.MethodGet, Path: "/signin/{network}/callback", Name: "sign_in_return",
				Handler: echo,
			},
		}
	})
	const prefix = "/a/verify-me"
	for _, row := range []struct {
		method, path string
		status       int
		body         string
	}{
		{http.MethodGet, prefix + "/?session=x", http.StatusOK, "page"},
		{http.MethodHead, prefix + "/?session=x", http.StatusOK, ""},
		{http.MethodPost, prefix + "/signin", http.StatusSeeOther, ""},
		{http.MethodGet, prefix + "/signin/my%20net/callback?code=x", http.StatusOK, "my net"},
		{http.MethodPost, prefix + pathInit, http.StatusUnauthorized, ""},
		{http.MethodGet, prefix + "/sessions/x", http.StatusUnauthorized, ""},
		{http.MethodPost, prefix + "/sessions/x/cancel", http.StatusUnauthorized, ""},

		{http.MethodGet, prefix, http.StatusNotFound, ""},
		{http.MethodGet, "/", http.StatusNotFound, ""},
		{http.MethodPost, pathInit, http.StatusNotFound, ""},
		{http.MethodPost, prefix + pathInit + "/", http.StatusNotFound, ""},
		{http.MethodPost, prefix + "/Verify/Init", http.StatusNotFound, ""},
		{http.MethodPost, prefix + "//verify/init", http.StatusNotFound, ""},
		{http.MethodPost, prefix + "/x/../verify/init", http.StatusNotFound, ""},
		{http.MethodGet, prefix + "/sessions/", http.StatusNotFound, ""},
		{http.MethodGet, prefix + "/sessions", http.StatusUnauthorized, ""},
		{http.MethodGet, prefix + "/sessions/x/", http.StatusNotFound, ""},
		{http.MethodPost, prefix + "/sessions/x/cancel/", http.StatusNotFound, ""},
	} {
		a := s.do(t, row.method, row.path, "")
		if a.status != row.status || row.body != "" && a.body != row.body {
			t.Errorf("%s %s = %d %q, want %d %q", row.method, row.path, a.status, a.body, row.status,
				row.body)
		}
		if a.status == http.StatusNotFound {
			wantProblem(t, a, problem.CodeNotFound)
		}
		if a.header.Get("Location") != "" || a.header.Get(web.HeaderRequestID) == "" ||
			a.header.Get("Strict-Transport-Security") == "" {
			t.Errorf("%s %s: headers %v", row.method, row.path, a.header)
		}
	}
}

// A person in a browser gets a page for an unknown path, and a program a problem document, as always.
func TestNowhereForPeopleAndPrograms(t *testing.T) {
	t.Parallel()
	s := newService(t, func(c *Config) {
		c.Nowhere = func(w http.ResponseWriter, _ *http.Request, status int) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte("a page"))
		}
	})
	const chromium = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"
	for _, row := range []struct {
		method, path, accept string
		status               int
		page                 bool
	}{
		{http.MethodGet, "/dashboard/nope", chromium, http.StatusNotFound, true},
		{http.MethodGet, "/verify/", "Text/HTML", http.StatusNotFound, true},
		{http.MethodGet, pathInit, chromium, http.StatusMethodNotAllowed, true}, // typed into the address bar
		{http.MethodGet, "/nope", "", http.StatusNotFound, false},
		{http.MethodGet, "/nope", "*/*", http.StatusNotFound, false},
		{http.MethodGet, "/nope", "application/json, text/html;q=0", http.StatusNotFound, false},
		{http.MethodPost, "/nope", chromium, http.StatusNotFound, false},
		// a route of programs stays theirs
		{http.MethodGet, "/sessions/x", chromium, http.StatusUnauthorized, false},
	} {
		a := s.do(t, row.method, row.path, "", "Accept", row.accept)
		if page := a.body == "a page"; a.status != row.status || page != row.page {
			t.Errorf("%s %s for %q: %d %q", row.method, row.path, row.accept, a.status, a.body)
		}
		if !row.page && a.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %s for %q: %s", row.method, row.path, row.accept, a.header.Get("Content-Type"))
		}
		if row.status != http.StatusUnauthorized && a.header.Get("Vary") != "Accept" {
			t.Errorf("%s %s: Vary %q", row.method, row.path, a.header.Get("Vary"))
		}
	}
	if icon := s.do(t, http.MethodGet, "/favicon.ico", ""); icon.status != http.StatusOK ||
		icon.header.Get("Content-Type") != "image/svg+xml" {
		t.Errorf("the icon: %d %v", icon.status, icon.header)
	}
}

func TestMethodsThatARouteDoesNotHave(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	for _, row := range []struct{ method, path, allow string }{
		{http.MethodGet, pathInit, "OPTIONS, POST"},
		{http.MethodPut, pathInit, "OPTIONS, POST"},
		{"BREW", pathInit, "OPTIONS, POST"},
		{http.MethodDelete, "/sessions/x", "GET, HEAD, OPTIONS"},
		{http.MethodGet, "/sessions/x/cancel", "OPTIONS, POST"},
	} {
		a := s.do(t, row.method, row.path, "", "Authorization", "Bearer "+acmeKey)
		p := wantProblem(t, a, problem.CodeMethodNotAllowed)
		if got := a.header.Get("Allow"); got != row.allow || !strings.Contains(p.Detail, row.allow) {
			t.Errorf("%s %s: Allow = %q, detail %q; want %q", row.method, row.path, got, p.Detail, row.allow)
		}
	}
	a := s.do(t, http.MethodOptions, pathInit, "", "Origin", "https://evil.example")
	if a.status != http.StatusNoContent || a.header.Get("Allow") != "OPTIONS, POST" ||
		a.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("OPTIONS = %d, %v", a.status, a.header)
	}
}

func TestPanics(t *testing.T) {
	t.Parallel()
	panics := func(write string, value any) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, write)
			_ = http.NewResponseController(w).Flush()
			panic(value)
		})
	}
	var none []int
	index := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { _ = none[1] })
	early := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("MARKERPANIC") })
	s := newService(t, func(c *Config) {
		c.Routes = []web.Route{
			{Method: http.MethodGet, Path: "/early", Name: "early", Handler: early},
			{Method: http.MethodGet, Path: "/index", Name: "index", Handler: index},
			{Method: http.MethodGet, Path: "/late", Name: "late",
				Handler: panics("half an answer", errors.New("MARKERPANIC"))},
			{Method: http.MethodGet, Path: "/abort", Name: "abort",
				Handler: panics("half", http.ErrAbortHandler)},
		}
	})
	for _, path := range []string{"/early", "/index"} {
		p := wantProblem(t, s.do(t, http.MethodGet, path, ""), problem.CodeInternal)
		if strings.Contains(p.Detail, "goroutine") || strings.Contains(p.Detail, "index out of range") ||
			strings.Contains(p.Detail, "MARKER") {
			t.Errorf("the client is told: %+v", p)
		}
	}
	for _, path := range []string{"/late", "/abort"} {
		resp, err := s.client.Get("http://" + s.server.Addr() + path) //nolint:noctx // the server ends it
		if err != nil {
			continue // cut before the client saw the header: cut all the same
		}
		if b, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("%s: %q passes for a whole answer", path, b)
		}
		_ = resp.Body.Close()
	}
	s.stop()
	log := s.log.String()
	if strings.Contains(log, "MARKER") {
		t.Errorf("a panic's value is logged: %s", log)
	}
	if n := strings.Count(log, "a handler panicked"); n != 3 || !strings.Contains(log, "routes_test.go") ||
		!strings.Contains(log, "index out of range") {
		t.Errorf("%d panics are logged, want 3, with stack and runtime errors: %s", n, log)
	}
	if lines := s.log.requests(t); len(lines) != 4 || lines[0]["level"] != "error" {
		t.Errorf("request lines = %v", lines)
	}
}

func TestBodiesOfMountedRoutesAreBounded(t *testing.T) {
	t.Parallel()
	read := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var large *http.MaxBytesError
		if _, err := io.ReadAll(r.Body); errors.As(err, &large) {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		}
	})
	s := newService(t, func(c *Config) {
		c.Routes = []web.Route{
			{Method: http.MethodPost, Path: "/form", Name: "form", Handler: read},
			{Method: http.MethodPost, Path: "/upload", Name: "upload", Handler: read,
				MaxBody: 4 * web.MaxBodyBytes},
		}
	})
	for size, status := range map[int]int{
		4 * web.MaxBodyBytes: http.StatusOK, 4*web.MaxBodyBytes + 1: http.StatusRequestEntityTooLarge,
	} {
		if a := s.do(t, http.MethodPost, "/upload", strings.Repeat("x", size)); a.status != status {
			t.Errorf("an upload of %d bytes: status = %d, want %d", size, a.status, status)
		}
	}
	for size, status := range map[int]int{
		web.MaxBodyBytes: http.StatusOK, web.MaxBodyBytes + 1: http.StatusRequestEntityTooLarge,
	} {
		if a := s.do(t, http.MethodPost, "/form", strings.Repeat("x", size)); a.status != status {
			t.Errorf("%d bytes: status = %d, want %d", size, a.status, status)
		}
	}
}
