package call

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxRefusalBytes is far more than any problem document of the service.
const maxRefusalBytes = 1 << 20

// Code names a kind of problem. Codes never change their meaning; new ones may appear.
type Code string

// CodeIdempotencyInProgress is of a request whose idempotency key is another's that still runs.
const CodeIdempotencyInProgress Code = "idempotency_in_progress"

// Error is a refusal of the service.
type Error struct {
	Status int // of HTTP
	// Code is empty if the answer was no problem document: it came from something in between.
	Code       Code
	Title      string        // what kind of problem it is
	Detail     string        // one sentence about this one
	RequestID  string        // under which the service's log knows it
	RetryAfter time.Duration // 0 if nothing was said
	Fields     []Field       // the faulty members or parameters, of "invalid_request"
	TriesLeft  int           // how many more codes are accepted, of "wrong_code"; 0: the session has failed
}

// Field is what is wrong with one member or parameter of a request.
type Field struct {
	Name   string `json:"field"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// Error returns all of it but the title, in one line.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "verifyd answered %d", e.Status)
	if e.Code != "" {
		fmt.Fprintf(&b, " %s", e.Code)
	}
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}
	for _, f := range e.Fields {
		text := strings.TrimSuffix(f.Detail, ".")
		if f.Name != "" { // else it is the whole body
			text = f.Name + ": " + text
		}
		if !strings.Contains(e.Detail, text) {
			b.WriteString(" " + text + ".")
		}
	}
	if e.RequestID != "" {
		fmt.Fprintf(&b, " (request %s)", e.RequestID)
	}
	return b.String()
}

// refusal reads a problem document (RFC 9457 §3), as far as it is one.
func refusal(response *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(response.Body, maxRefusalBytes))
	if err != nil {
		return unanswered(err)
	}
	var doc struct {
		Title     string  `json:"title"`
		Detail    string  `json:"detail"`
		Code      Code    `json:"code"`
		RequestID string  `json:"request_id"`
		Errors    []Field `json:"errors"`
		TriesLeft int     `json:"tries_left"`
	}
	e := &Error{
		Status: response.StatusCode, RetryAfter: retryAfter(response.Header.Get("Retry-After"), time.Now()),
	}
	if err := json.Unmarshal(body, &doc); err != nil || doc.Code == "" {
		e.Detail = "the answer does not come from verifyd; check what is between it and this program"
		if location := response.Header.Get("Location"); location != "" {
			e.Detail = "a redirect, which is not followed; is the base URL right?"
		}
		return e
	}
	e.Code, e.Title, e.Detail, e.RequestID = doc.Code, doc.Title, doc.Detail, doc.RequestID
	e.Fields, e.TriesLeft = doc.Errors, doc.TriesLeft
	return e
}

// retryAfter reads seconds or an HTTP date (RFC 9110 §10.2.3); what is neither asks for nothing.
func retryAfter(field string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(field, 10, 32); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(field); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}

// NoAnswer says that the service's answer did not arrive, or was not one. The service may have done what it
// was asked all the same.
type NoAnswer struct{ Err error }

// Error says what went wrong, without the URL.
func (e *NoAnswer) Error() string {
	if op, ok := errors.AsType[*net.OpError](e.Err); ok && op.Op == "dial" {
		return "verifyd was not reached: " + e.Err.Error()
	}
	return "verifyd gave no answer: " + e.Err.Error()
}

// Unwrap returns the cause, so that errors.Is finds context.DeadlineExceeded.
func (e *NoAnswer) Unwrap() error { return e.Err }
