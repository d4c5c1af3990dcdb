// Package manage is the client of verifyd's management interface: what an operator's own programs do with
// accounts, API keys, signing secrets and members, by an operator token (verifyd operator token create). It
// imports nothing else of verifyd but package call.
//
// The laws:
//
//   - What makes something is tried again by itself, under one idempotency key, if no answer came or the
//     service was not available: the service then gives the same answer. Nothing else is sent twice, and the
//     comment of each method reports whether a repeat is harmless.
//   - No redirect is followed, and a token leaves over https only; plain http is for loopback.
//   - A refusal is an *Error with everything that its problem document says (RFC 9457). Errors never carry
//     the token, nor a secret of an answer.
package manage
