// Package client is for integrators' Go programs: Client starts and reads verification sessions, and Receiver
// is the http.Handler behind a callback_url. It imports nothing else of verifyd but package call.
//
// The laws:
//
//   - Nothing is sent twice by itself, with one exception: Start is tried again, under one idempotency key,
//     if no answer came or the service was not available, since the service then gives the same session.
//     Everything else is for the caller to decide, and the comment of each method reports whether a repeat is
//     harmless.
//   - No redirect is followed, and an API key leaves over https only; plain http is for loopback.
//   - A refusal is an *Error with everything that its problem document says (RFC 9457). Errors never carry
//     the API key, a signing secret, or a session token.
//   - A callback reaches the integrator's code only when its signature and its time are right, once for each
//     webhook-id. It is answered with a 2xx only after that code has returned without an error: what was not
//     handled is not lost.
package client
