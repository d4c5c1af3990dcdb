package web

import (
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"verifyd/edge/problem"
)

// MaxBodyBytes bounds a request's body on every route that sets no bound of its own. The largest sensible
// init, every string at its limit and escaped sixfold, would be more; as UTF-8 it is under 6 KiB.
const MaxBodyBytes = 16 << 10

// problemType precedes the code in a problem's type. It names the kind; there is nothing to fetch behind it.
const problemType = "urn:verifyd:problem:"

// Document is a problem document (RFC 9457 §3), with members of our own: code, request_id and errors.
type Document struct {
	Type      string          `json:"type"`
	Title     string          `json:"title"`
	Status    int             `json:"status"`
	Detail    string          `json:"detail"`
	Code      problem.Code    `json:"code"`
	RequestID string          `json:"request_id"`
	Errors    []problem.Fault `json:"errors,omitempty"`
	TriesLeft *int            `json:"tries_left,omitempty"` // of CodeWrongCode: how many codes may still be entered
}

// WriteProblem is the one function that writes problem documents. Headers that belong to a code alone are set
// here.
func WriteProblem(w http.ResponseWriter, r *http.Request, p *problem.Problem) {
	if p.Code.Status() == 0 {
		p.Code = problem.CodeInternal
	}
	status := p.Code.Status()
	event := EventFrom(r.Context())
	event.Code, event.Err = p.Code, p.Cause
	h := w.Header()
	if status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer") // RFC 6750 §3
	}
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(Seconds(p.RetryAfter), 10))
	}
	WriteJSON(w, status, "application/problem+json", Document{
		Type: problemType + string(p.Code), Title: p.Code.Title(), Status: status, Detail: p.Detail,
		Code:      p.Code,
		RequestID: event.RequestID, Errors: p.Faults, TriesLeft: p.TriesLeft,
	})
}

// WriteJSON writes an answer that no cache stores and no browser takes for anything else.
func WriteJSON(w http.ResponseWriter, status int, mediaType string, doc any) {
	body, err := json.Marshal(doc)
	if err != nil {
		// Only strings that are not UTF-8 cause this, and none gets in. The panic becomes a 500 and a log
		// line.
		panic(err)
	}
	h := w.Header()
	h.Set("Content-Type", mediaType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that hung up needs no answer
}

// Seconds rounds up: a client that waits as long as it was told must not be early.
func Seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// timestampLayout is the contract's form of an instant (contract §2.1), in UTC.
const timestampLayout = "2006-01-02T15:04:05.000Z"

// Timestamp formats an instant.
func Timestamp(t time.Time) string { return t.UTC().Format(timestampLayout) }
