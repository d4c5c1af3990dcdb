package edge

import (
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
)

// Code names a kind of problem. Codes are part of the public interface and never change their meaning.
type Code string

// The codes of problem documents.
const (
	CodeInvalidRequest        Code = "invalid_request"         // the body is not JSON, or fields are missing or invalid; errors lists all
	CodeKeyMissing            Code = "key_missing"             // no Authorization header, several, or another scheme than Bearer
	CodeKeyInvalid            Code = "key_invalid"             // not a key of this service, unknown, revoked, or a test key where those are off
	CodeAccountDisabled       Code = "account_disabled"        // the key is good, and its account is out of service for now
	CodeNotFound              Code = "not_found"               // no such route
	CodeSessionNotFound       Code = "session_not_found"       // no such session in the key's account, or not kept any more
	CodeMethodNotAllowed      Code = "method_not_allowed"      // the route has other methods; Allow lists them
	CodeRequestTimeout        Code = "request_timeout"         // the body did not arrive in time
	CodeSessionCompleted      Code = "session_completed"       // verified or failed already: it cannot be canceled any more
	CodeSessionExpired        Code = "session_expired"         // its 10 minutes are over: there is nothing to cancel
	CodeNothingToSend         Code = "nothing_to_send"         // the session has no outcome that is sent
	CodeDeliveryOpen          Code = "delivery_open"           // the delivery is not at an end: nothing can be sent again yet
	CodeIdempotencyInProgress Code = "idempotency_in_progress" // the first request with this Idempotency-Key goes on; see Retry-After
	CodeIdempotencyReused     Code = "idempotency_key_reused"  // the Idempotency-Key stands for a start with other fields
	CodeBodyTooLarge          Code = "body_too_large"          // more than MaxBodyBytes
	CodeUnsupportedMedia      Code = "unsupported_media"       // Content-Type or Content-Encoding
	CodeTooManyFailedKeys     Code = "too_many_failed_keys"    // too many requests without a valid key from this address; see Retry-After
	CodeRateLimited           Code = "rate_limited"            // too many sessions with this key just now; see Retry-After
	CodeQuotaExceeded         Code = "quota_exceeded"          // too many sessions in this account this month; see Retry-After
	CodeInternal              Code = "internal"                // a fault of the service
	CodeUnavailable           Code = "unavailable"             // the service cannot reach its store; see Retry-After
	CodeTooManyWaiting        Code = "too_many_waiting"        // too many requests wait for a change already; see Retry-After
	CodeTooManyLists          Code = "too_many_lists"          // the account makes too many lists at once; see Retry-After
	CodeStoreFull             Code = "store_full"              // the store is nearly full: open sessions go on, new ones do not start
	CodeLiveKey               Code = "live_key"                // only test keys may do this
	CodeTooManyListeners      Code = "too_many_listeners"      // too many listen already; see Retry-After
	CodeExchangeOver          Code = "exchange_over"           // nobody waits for the answer of a listener any more
)

// problems is the table of all problems: status and title (RFC 9457 §3.1) of each code.
var problems = map[Code]struct {
	status int
	title  string
}{
	CodeInvalidRequest: {http.StatusBadRequest, "The request is not valid"},
	CodeKeyMissing:     {http.StatusUnauthorized, "An API key is required"},
	CodeKeyInvalid:     {http.StatusUnauthorized, "The API key is not valid"},
	// contract §4.1 knows no other status for it
	CodeAccountDisabled:       {http.StatusUnauthorized, "The account is disabled"},
	CodeNotFound:              {http.StatusNotFound, "There is nothing at this address"},
	CodeSessionNotFound:       {http.StatusNotFound, "There is no such session"},
	CodeMethodNotAllowed:      {http.StatusMethodNotAllowed, "The method is not allowed here"},
	CodeRequestTimeout:        {http.StatusRequestTimeout, "The request did not arrive in time"},
	CodeSessionCompleted:      {http.StatusConflict, "The session is completed already"},
	CodeSessionExpired:        {http.StatusConflict, "The session has expired"},
	CodeNothingToSend:         {http.StatusConflict, "The session has nothing to send"},
	CodeDeliveryOpen:          {http.StatusConflict, "The delivery is still under way"},
	CodeIdempotencyInProgress: {http.StatusConflict, "The first request goes on"},
	CodeIdempotencyReused: {
		http.StatusUnprocessableEntity, "The idempotency key stands for another request",
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
	CodeTooManyListeners:  {http.StatusTooManyRequests, "Too many listen already"},
	CodeExchangeOver:      {http.StatusNotFound, "The exchange is over"},
}

// problemType precedes the code in a problem's type. It names the kind; there is nothing to fetch behind it.
const problemType = "urn:verifyd:problem:"

// problem is what a handler says instead of an answer.
type problem struct {
	code       Code
	detail     string        // one sentence for the integrator, without secrets
	faults     []Fault       // the faulty fields, for CodeInvalidRequest
	retryAfter time.Duration // sent in whole seconds, rounded up; 0: not sent
	cause      error         // for the log only
}

// problemDoc is a problem document (RFC 9457 §3), with members of our own: code, request_id and errors.
type problemDoc struct {
	Type      string  `json:"type"`
	Title     string  `json:"title"`
	Status    int     `json:"status"`
	Detail    string  `json:"detail"`
	Code      Code    `json:"code"`
	RequestID string  `json:"request_id"`
	Errors    []Fault `json:"errors,omitempty"`
}

// writeProblem is the one function that writes problem documents. Headers that belong to a code alone are set
// here.
func writeProblem(w http.ResponseWriter, r *http.Request, p *problem) {
	row, known := problems[p.code]
	if !known {
		p.code = CodeInternal
		row = problems[CodeInternal]
	}
	event := EventFrom(r.Context())
	event.Code, event.Err = p.code, p.cause
	h := w.Header()
	if row.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer") // RFC 6750 §3
	}
	if p.retryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(seconds(p.retryAfter), 10))
	}
	writeJSON(w, row.status, "application/problem+json", problemDoc{
		Type: problemType + string(p.code), Title: row.title, Status: row.status, Detail: p.detail,
		Code:      p.code,
		RequestID: event.RequestID, Errors: p.faults,
	})
}

// writeJSON writes an answer that nobody stores and no browser takes for anything else.
func writeJSON(w http.ResponseWriter, status int, mediaType string, doc any) {
	body, err := json.Marshal(doc)
	if err != nil {
		// Only strings that are not UTF-8 do this, and none such gets in. The panic becomes a 500 and a log
		// line.
		panic(err)
	}
	h := w.Header()
	h.Set("Content-Type", mediaType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body) //nolint:gosec // JSON that says so and forbids sniffing; and whoever hung up needs no answer
}

// seconds rounds up: a client that waits as long as it was told must not be early.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
