package web

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"verifyd/edge/problem"
	"verifyd/sessions"
)

// HeaderRequestID carries the id of a request in the log. A client's own is not adopted: it could be
// anything.
const HeaderRequestID = "X-Request-Id"

// LogMessage is the message of the one log line of each request.
const LogMessage = "request"

// noRoute is the route's name if none matched, in logs and metrics.
const noRoute = "none"

// RequestEvent gathers what the one log line of a request reports. Handlers fill in what they learn; nothing
// in it may be a secret.
type RequestEvent struct {
	RequestID string
	ClientIP  netip.Addr
	Account   string       // id of the account
	Owner     string       // whose the account is; it is not logged
	Key       string       // id of the API key
	Session   sessions.ID  // never the token
	Code      problem.Code // of the problem document, if there was one
	Err       error        // the cause of a 5xx; its text is for operators

	WaitedForKey time.Duration // until the API key was known to be valid or not

	Replayed bool // a repeat of a start, answered with the existing session

	Route string        // the pattern
	Name  string        // of the route, in metrics
	body  io.ReadCloser // the whole of it, without a bound
	traced
}

type eventKey struct{}

// EventFrom returns the event of the request that ctx belongs to. Outside of a request it is one that is not
// written.
func EventFrom(ctx context.Context) *RequestEvent {
	if event, ok := ctx.Value(eventKey{}).(*RequestEvent); ok {
		return event
	}
	return &RequestEvent{}
}

// frame is what every request goes through: an id, a bounded body, recovery, one log line, and metrics.
func (h *handler) frame(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		started := time.Now()
		event := &RequestEvent{
			RequestID: rand.Text(), ClientIP: clientIP(r.RemoteAddr, r.Header.Values("X-Forwarded-For"),
				h.TrustedProxies),
			Route: noRoute, Name: noRoute, traced: traced{
				tracer: h.Tracer, started: started, method: methodLabel(r.Method),
			},
		}
		out := &countedWriter{ResponseWriter: w}
		in := &countedReader{ReadCloser: r.Body}
		r = r.WithContext(context.WithValue(r.Context(), eventKey{}, event))
		event.body, r.Body = in, http.MaxBytesReader(w, in, MaxBodyBytes)
		out.Header().Set(HeaderRequestID, event.RequestID)
		if h.HTTPS { // for a year; not for subdomains, since this service must not decide about those
			out.Header().Set("Strict-Transport-Security", "max-age=31536000")
		}
		h.metrics.inFlight.Inc()
		defer func() {
			fault := recover()
			if fault != nil {
				h.recovered(out, r, fault)
			}
			h.metrics.inFlight.Dec()
			took := time.Since(started)
			event.endSpan(out.status)
			h.metrics.observe(event, out.status, took)
			if h.Answered != nil {
				h.Answered(event, out.status)
			}
			h.write(event, in, out, took)
			if fault != nil && (out.cut || isAbort(fault)) {
				// net/http closes the connection, so that half an answer does not pass for a whole one
				panic(http.ErrAbortHandler)
			}
		}()
		next.ServeHTTP(out, r)
		out.finish()
	})
}

// recovered answers for a handler that panicked. The client does not learn where. The log gets the stack, but
// the text of runtime errors only, since another panic's value could hold anything.
func (h *handler) recovered(out *countedWriter, r *http.Request, fault any) {
	if isAbort(fault) {
		return
	}
	what := fmt.Sprintf("%T", fault)
	if err, ok := fault.(runtime.Error); ok {
		what = err.Error()
	}
	event := EventFrom(r.Context())
	h.Log.Error().Str("request_id", event.RequestID).Str("sid", string(event.Session)).Str("panic", what).
		Bytes("stack", debug.Stack()).Msg("a handler panicked")
	if out.status != 0 {
		out.cut = true
		return
	}
	WriteProblem(out, r, &problem.Problem{
		Code:   problem.CodeInternal,
		Detail: "The service failed; its log has the reason under this request_id.",
		Cause:  errors.New("panic: " + what),
	})
}

// isAbort recognizes the panic with which a handler aborts its request on purpose.
func isAbort(fault any) bool {
	err, ok := fault.(error)
	return ok && errors.Is(err, http.ErrAbortHandler)
}

func (h *handler) write(event *RequestEvent, in *countedReader, out *countedWriter, took time.Duration) {
	e := h.Log.WithLevel(levelOf(out.status)).
		Str("request_id", event.RequestID).Str("method", event.method).Str("route", event.Route).
		Int("status", out.status).Dur("took", took).Int64("bytes_in", in.n).Int64("bytes_out", out.n).
		Stringer("client_ip", event.ClientIP)
	for _, f := range []struct{ name, value string }{
		{"account", event.Account}, {"key", event.Key}, {"sid", string(event.Session)},
		{"code", string(event.Code)},
		{"trace_id", event.trace()},
	} {
		if f.value != "" {
			e = e.Str(f.name, f.value)
		}
	}
	if event.Err != nil {
		e = e.Err(event.Err)
	}
	e.Msg(LogMessage)
}

func levelOf(status int) zerolog.Level {
	switch {
	case status == http.StatusServiceUnavailable:
		return zerolog.WarnLevel
	case status >= http.StatusInternalServerError:
		return zerolog.ErrorLevel
	default:
		return zerolog.InfoLevel
	}
}

var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	http.MethodOptions,
	http.MethodConnect, http.MethodTrace,
}

// methodLabel keeps a client from writing arbitrary text into the log: methods are free text.
func methodLabel(method string) string {
	if slices.Contains(methods, method) {
		return method
	}
	return "other"
}

// countedReader counts the bytes of a body that were read.
type countedReader struct {
	io.ReadCloser

	n int64
}

func (c *countedReader) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.n += int64(n)
	return n, err
}

// countedWriter remembers the status and counts the bytes of an answer.
type countedWriter struct {
	http.ResponseWriter

	status int // 0 until the header is written
	n      int64
	cut    bool // the answer is not whole, and cannot be any more
}

func (c *countedWriter) WriteHeader(status int) {
	if c.status == 0 && status >= http.StatusOK { // 1xx are not the answer
		c.status = status
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c *countedWriter) Write(p []byte) (int, error) {
	c.finish()
	n, err := c.ResponseWriter.Write(p)
	c.n += int64(n)
	return n, err
}

// finish records the status that net/http sends for an answer that names none.
func (c *countedWriter) finish() {
	if c.status == 0 {
		c.status = http.StatusOK
	}
}

// Unwrap lets http.ResponseController reach the connection.
func (c *countedWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }
