// Package sessions is the domain: what a verification session is, how it moves, and the facts that say so. It knows no HTTP.
//
// The law, as a state machine:
//
//	                 Create                    Complete
//	(none) ───────────────────────► pending ─────────────────► verified | failed | canceled     (final)
//	                                  │ ExpiresAt
//	                                  └──────────────────────► expired                          (final, no callback)
//
// and, once there is an outcome other than canceled, its delivery:
//
//	due ─► claimed ─► delivered | rejected | unknown                                            (final)
//	 ▲        └────── released: the owner wrote nothing ─┐
//	 └───────────────────────────────────────────────────┘      due ─► undeliverable            (final)
//
// Two things lead from an end back to due, and both are facts: a result that names its next attempt, under the policy
// at-least-once, and a resend, which a person asks for.
//
// Five rules hold everywhere:
//
//  1. A fact is written once: one message on one subject of the write-once stream COMPLETIONS. The completion, each claim, each
//     result and each resend is such a fact. State is read from facts; there is no second copy that a crash could let drift.
//  2. The expiry instant in the record decides. Neither a message's age nor a bucket's TTL is ever asked.
//  3. The session token is the user's secret and is never stored, but sealed, for ten minutes, where an idempotency key must lead
//     to it again. Everything that is written, logged or shown carries the
//     session id, which is made from the token and does not lead back to it.
//  4. A write that was not plainly confirmed is resolved by reading its subject from the stream's leader and comparing the
//     nonce; nobody acts on an unconfirmed write.
//  5. What stands in a fact's place and was written by no build means what ErrUnreadable says, for every reader, and is told to operators.
package sessions
