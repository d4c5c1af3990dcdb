// Package problem has the table of the problems that a request can be refused with.
package problem

import (
	"iter"
	"maps"
	"net/http"
	"time"
)

// Code names a kind of problem. Codes are part of the public interface and never change their meaning.
type Code string

// The codes of problem documents.
const (
	// CodeInvalidRequest: the body is not JSON, or fields are missing or invalid; errors lists all
	CodeInvalidRequest Code = "invalid_request"
	// CodeKeyMissing: no Authorization header, several, or another scheme than Bearer
	CodeKeyMissing Code = "key_missing"
	// CodeKeyInvalid: not a key of this service, unknown, revoked, or a test key where those are off
	CodeKeyInvalid Code = "key_invalid"
	// CodeAccountDisabled: the key is valid, but its account is disabled for now
	CodeAccountDisabled Code = "account_disabled"
	CodeNotFound        Code = "not_found" // no such route
	// CodeSessionNotFound: no such session in the key's account, or no longer kept
	CodeSessionNotFound Code = "session_not_found"
	// CodeMethodNotAllowed: the route has other methods; Allow lists them
	CodeMethodNotAllowed Code = "method_not_allowed"
	CodeRequestTimeout   Code = "request_timeout" // the body did not arrive in time
	// CodeSessionCompleted: already verified or failed: it can no longer be canceled
	CodeSessionCompleted Code = "session_completed"
	// CodeSessionExpired: its 10 minutes are over: there is nothing to cancel
	CodeSessionExpired Code = "session_expired"
	CodeNothingToSend  Code = "nothing_to_send" // the session has no outcome to send
	// CodeDeliveryOpen: the delivery has not ended: nothing can be sent again yet
	CodeDeliveryOpen Code = "delivery_open"
	// CodeNothingToConfirm: the session asks for no code, nobody has signed in yet, or it has ended
	CodeNothingToConfirm Code = "nothing_to_confirm"
	// CodeWrongCode: the code is not the session's, or another platform user gave it; see tries_left
	CodeWrongCode Code = "wrong_code"
	// CodeConfirmationExpired: the session's 10 minutes are over: no code is taken any more
	CodeConfirmationExpired Code = "confirmation_expired"
	// CodeIdempotencyInProgress: the first request with this Idempotency-Key is in progress; see Retry-After
	CodeIdempotencyInProgress Code = "idempotency_in_progress"
	// CodeIdempotencyReused: the Idempotency-Key was used for a start with other fields
	CodeIdempotencyReused Code = "idempotency_key_reused"
	CodeBodyTooLarge      Code = "body_too_large"    // more than MaxBodyBytes
	CodeUnsupportedMedia  Code = "unsupported_media" // Content-Type or Content-Encoding
	// CodeTooManyFailedKeys: too many requests without a valid key from this address; see Retry-After
	CodeTooManyFailedKeys Code = "too_many_failed_keys"
	// CodeRateLimited: the key starts or confirms sessions, or sends again, too fast; see Retry-After
	CodeRateLimited Code = "rate_limited"
	// CodeQuotaExceeded: too many sessions in this account this month; see Retry-After
	CodeQuotaExceeded Code = "quota_exceeded"
	CodeInternal      Code = "internal" // a fault of the service
	// CodeUnavailable: the service cannot reach its store; see Retry-After
	CodeUnavailable Code = "unavailable"
	// CodeTooManyWaiting: too many requests are already waiting for a change; see Retry-After
	CodeTooManyWaiting Code = "too_many_waiting"
	// CodeTooManyLists: the account makes too many lists at once; see Retry-After
	CodeTooManyLists Code = "too_many_lists"
	// CodeStoreFull: the store is nearly full: open sessions continue, new ones do not start
	CodeStoreFull        Code = "store_full"
	CodeLiveKey          Code = "live_key"           // only test keys may do this
	CodeTooManyListeners Code = "too_many_listeners" // too many listeners already; see Retry-After
	// CodeExchangeOver: nothing waits for a listener's answer any more
	CodeExchangeOver Code = "exchange_over"
)

// kind is what all problems of a code have: status and title (RFC 9457 §3.1).
type kind struct {
	status int
	title  string
}

// problems has all others.
var problems = map[Code]kind{
	CodeInvalidRequest: {http.StatusBadRequest, "The request is not valid"},
	CodeKeyMissing:     {http.StatusUnauthorized, "An API key is required"},
	CodeKeyInvalid:     {http.StatusUnauthorized, "The API key is not valid"},
	// contract §4.1 has no other status for it
	CodeAccountDisabled:       {http.StatusUnauthorized, "The account is disabled"},
	CodeNotFound:              {http.StatusNotFound, "There is nothing at this address"},
	CodeSessionNotFound:       {http.StatusNotFound, "There is no such session"},
	CodeMethodNotAllowed:      {http.StatusMethodNotAllowed, "The method is not allowed here"},
	CodeRequestTimeout:        {http.StatusRequestTimeout, "The request did not arrive in time"},
	CodeSessionCompleted:      {http.StatusConflict, "The session is already completed"},
	CodeSessionExpired:        {http.StatusConflict, "The session has expired"},
	CodeNothingToSend:         {http.StatusConflict, "The session has nothing to send"},
	CodeDeliveryOpen:          {http.StatusConflict, "The delivery is still in progress"},
	CodeNothingToConfirm:      {http.StatusConflict, "The session has nothing to confirm"},
	CodeWrongCode:             {http.StatusUnprocessableEntity, "The code is wrong"},
	CodeConfirmationExpired:   {http.StatusGone, "The session has expired"},
	CodeIdempotencyInProgress: {http.StatusConflict, "The first request is still in progress"},
	CodeIdempotencyReused: {
		http.StatusUnprocessableEntity, "The idempotency key was used for another request",
	},
	CodeBodyTooLarge:      {http.StatusRequestEntityTooLarge, "The request body is too large"},
	CodeUnsupportedMedia:  {http.StatusUnsupportedMediaType, "The body is not plain application/json"},
	CodeTooManyFailedKeys: {http.StatusTooManyRequests, "Too many requests without a valid API key"},
	CodeRateLimited:       {http.StatusTooManyRequests, "The rate limit is exceeded"},
	CodeQuotaExceeded:     {http.StatusTooManyRequests, "The monthly quota is exceeded"},
	CodeInternal:          {http.StatusInternalServerError, "The service failed"},
	CodeUnavailable:       {http.StatusServiceUnavailable, "The service is not available"},
	CodeTooManyWaiting:    {http.StatusServiceUnavailable, "Too many requests are waiting"},
	CodeTooManyLists:      {http.StatusTooManyRequests, "Too many lists at once"},
	CodeStoreFull:         {http.StatusServiceUnavailable, "The store is nearly full"},
	CodeLiveKey:           {http.StatusForbidden, "A test key is required"},
	CodeTooManyListeners:  {http.StatusTooManyRequests, "Too many listeners"},
	CodeExchangeOver:      {http.StatusNotFound, "The exchange is over"},
}

// Codes returns all codes except those of the management interface, in no particular order.
func Codes() iter.Seq[Code] { return maps.Keys(problems) }

// ManagementCodes returns the codes that only the management interface uses, in no particular order.
func ManagementCodes() iter.Seq[Code] { return maps.Keys(managing) }

func (c Code) kind() kind {
	if k, ok := managing[c]; ok {
		return k
	}
	return problems[c]
}

// Status returns the HTTP status of a code; 0 if there is no such code.
func (c Code) Status() int { return c.kind().status }

// Title returns the title of a code.
func (c Code) Title() string { return c.kind().title }

// Fault describes what is wrong with one field of a request.
type Fault struct {
	// the member's, header's or query parameter's name; empty if the body as a whole is meant
	Field  string `json:"field"`
	Code   string `json:"code"`   // one of the Fault codes, or one of package urlpolicy
	Detail string `json:"detail"` // what is wrong and what would be valid, in lower case, without a full stop
}

// Problem is what a handler returns instead of an answer.
type Problem struct {
	Code       Code
	Detail     string        // one sentence for the integrator, without secrets
	Faults     []Fault       // the faulty fields, for CodeInvalidRequest
	RetryAfter time.Duration // sent in whole seconds, rounded up; 0: not sent
	TriesLeft  *int          // sent as tries_left, for CodeWrongCode
	Cause      error         // for the log, and for callers in this process
}
