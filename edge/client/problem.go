package client

import "verifyd/edge/client/call"

// Error is a refusal of the service: the HTTP Status, and what its problem document says (RFC 9457).
type Error = call.Error

// Code names a kind of problem. Codes never change their meaning; new ones may appear.
type Code = call.Code

// Field is what is wrong with one member or parameter of a request: its Name, a Code and a Detail.
type Field = call.Field

// NoAnswer says that the service's answer did not arrive, or was not one. The service may have done what it
// was asked all the same.
type NoAnswer = call.NoAnswer

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
	CodeDeliveryOpen     Code = "delivery_open"
	CodeNothingToConfirm Code = "nothing_to_confirm" // 409: no code, no sign-in yet, or ended
	CodeWrongCode        Code = "wrong_code"         // 422: see TriesLeft
	CodeNothingToSend    Code = "nothing_to_send"    // 409: the session has no outcome that is sent
	// CodeIdempotencyInProgress: 409: the first call with this key still runs
	CodeIdempotencyInProgress = call.CodeIdempotencyInProgress
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
