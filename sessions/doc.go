// Package sessions is the domain: what a verification session is, which states it passes through, and how it
// ends. It is pure: it knows no HTTP, no NATS and no measurements, and neither do its packages facts,
// failure, proof and timeline. Package store keeps sessions in JetStream.
//
// Its state machine:
//
//	                 Create                    Complete
//	(none) ───────────────────────► pending ─────────────────► verified | failed | canceled  (final)
//	                                  │ ExpiresAt
//	                                  └──────────────────────► expired           (final, no callback)
//
// and, once there is an outcome other than canceled, its delivery:
//
//	due ─► claimed ─► delivered | rejected | unknown                                            (final)
//	 ▲        └────── released: the owner wrote nothing ─┐
//	 └───────────────────────────────────────────────────┘      due ─► undeliverable            (final)
//
// Two facts make an ended delivery due again: a result that names its next attempt, under the policy
// at-least-once, and a resend, which a person requests.
//
// Six rules hold everywhere:
//
//  1. A fact is written once: one message on one subject of the write-once stream COMPLETIONS. The
//     completion, each claim, each result and each resend is such a fact. State is read from facts; there is
//     no second copy that could differ after a crash.
//  2. The expiry instant in the record decides. Neither a message's age nor a bucket's TTL decides it.
//  3. The session token is the user's secret and is not stored, except sealed, for ten minutes, if an
//     idempotency key must lead to it again. Everything that is written, logged or shown carries the session
//     id, which is made from the token and does not lead back to it.
//  4. A write that was not plainly confirmed is resolved by reading its subject from the stream's leader and
//     comparing the nonce; no process acts on an unconfirmed write.
//  5. A message in a fact's place that no build has written has the meaning that facts.ErrUnreadable defines,
//     for every reader, and is reported to operators.
//  6. Records are read strictly (package records). A build that adds a member to a record raises the version
//     of its kind.
package sessions
