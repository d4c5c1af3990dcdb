package browsertest

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// headerSlow marks a request whose client does not read.
const headerSlow = "Slow"

// Slow stands before a server's handler, and holds answers as clients do that do not read.
type Slow struct {
	held    chan struct{} // receives when an answer is held
	end     chan struct{} // closed when all go on
	release sync.Once
}

// NewSlow returns one that holds answers until Release.
func NewSlow() *Slow { return &Slow{held: make(chan struct{}), end: make(chan struct{})} }

// Before returns a handler that holds the answers of next to the requests of Hold.
func (s *Slow) Before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(headerSlow) != "" {
			w = &heldWriter{ResponseWriter: w, slow: s}
		}
		next.ServeHTTP(w, r)
	})
}

// Hold sends a request, and returns when its answer is held, until Release or the test's end. The channel has
// what the client reads then; see IsCut.
func (s *Slow) Hold(tb testing.TB, client *http.Client, req *http.Request) <-chan string {
	tb.Helper()
	tb.Cleanup(s.Release) // before the server ends, which waits for its answers
	req.Header.Set(headerSlow, "yes")
	answer := make(chan string, 1)
	go func() {
		resp, err := client.Do(req) //nolint:gosec // a test's own server
		if err != nil {
			answer <- "cut"
			return
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			body = append(body, "cut"...)
		}
		answer <- string(body)
	}()
	select {
	case <-s.held:
	case early := <-answer:
		tb.Fatalf("nothing is held of %.200q", early)
	}
	return answer
}

// Release lets all answers go on, and those that come.
func (s *Slow) Release() { s.release.Do(func() { close(s.end) }) }

type heldWriter struct {
	http.ResponseWriter

	slow *Slow
	once bool
}

func (w *heldWriter) Write(p []byte) (int, error) {
	if !w.once {
		w.once = true
		select {
		case w.slow.held <- struct{}{}:
			<-w.slow.end
		case <-w.slow.end:
		}
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *heldWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// IsCut reports whether an answer of Hold broke off.
func IsCut(answer string) bool { return strings.HasSuffix(answer, "cut") }
