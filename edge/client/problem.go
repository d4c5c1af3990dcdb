package client

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Code names a kind of problem. Codes never change their meaning; new ones may appear.
type Code string

// The codes that a program may want to distinguish. The service's documentation lists all of them.
const (
	// CodeInvalidRequest: 400: Fields says which members are wrong, and how
	CodeInvalidRequest Code = "invalid_request"
	CodeKeyInvalid     Code = "key_invalid" // 401: unknown, expired or revoked
	// CodeAccountDisabled: 401: the operator has disabled the key's account; the key may work again
	CodeAccountDisabled Code = "account_disabled"
	// CodeSessionNotFound: 404: not this account's, or not kept any more
	CodeSessionNotFound  Code = "session_not_found"
	CodeSessionCompleted Code = "session_completed" // 409: it cannot be canceled any more
	CodeSessionExpired   Code = "session_expired"   // 409
	// CodeDeliveryOpen: 409: the delivery has not ended, so nothing is sent again
	CodeDeliveryOpen          Code = "delivery_open"
	CodeNothingToConfirm      Code = "nothing_to_confirm"      // 409: no code, no sign-in yet, or ended
	CodeWrongCode             Code = "wrong_code"              // 422: see TriesLeft
	CodeNothingToSend         Code = "nothing_to_send"         // 409: the session has no outcome that is sent
	CodeIdempotencyInProgress Code = "idempotency_in_progress" // 409: the first call with this key still runs
	// CodeIdempotencyKeyReused: 422: the key was used with another verification
	CodeIdempotencyKeyReused Code = "idempotency_key_reused"
	CodeRateLimited          Code = "rate_limited"   // 429: too many just now; see RetryAfter
	CodeQuotaExceeded        Code = "quota_exceeded" // 429: too many this month; see RetryAfter
	CodeLiveKey              Code = "live_key"       // 403: Listen is for test keys
	// CodeExchangeOver: 404: a listener's answer came too late, or a second time
	CodeExchangeOver Code = "exchange_over"
	CodeUnavailable  Code = "unavailable" // 503: nothing was started; see RetryAfter
	CodeStoreFull    Code = "store_full"  // 503: nothing was started
)

// Error is a refusal of the service.
type Error struct {
	Status int // of HTTP
	// empty if the answer was no problem document: it came from something in between
	Code       Code
	Title      string        // what kind of problem it is
	Detail     string        // one sentence about this one
	RequestID  string        // under which the service's log knows it
	RetryAfter time.Duration // 0 if nothing was said
	Fields     []Field       // the faulty members, for CodeInvalidRequest
	TriesLeft  int           // how many more codes are taken, for CodeWrongCode; 0: the session has failed
}

// Field is what is wrong with one member of a request.
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
		fmt.Fprintf(&b, " %s: %s.", f.Name, strings.TrimSuffix(f.Detail, "."))
	}
	if e.RequestID != "" {
		fmt.Fprintf(&b, " (request %s)", e.RequestID)
	}
	return b.String()
}

// newError reads a problem document (RFC 9457 §3), as far as it is one.
func newError(response *http.Response, body []byte, now time.Time) *Error {
	var doc struct {
		Title     string  `json:"title"`
		Detail    string  `json:"detail"`
		Code      Code    `json:"code"`
		RequestID string  `json:"request_id"`
		Errors    []Field `json:"errors"`
		TriesLeft int     `json:"tries_left"`
	}
	e := &Error{Status: response.StatusCode, RetryAfter: retryAfter(response.Header.Get("Retry-After"), now)}
	if err := json.Unmarshal(body, &doc); err != nil || doc.Code == "" {
		e.Detail = "not in the service's own words; look at what is between it and this program"
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
