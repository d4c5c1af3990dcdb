// Package dispatcher sends all callbacks: it takes completions from JetStream and sends one POST for each. It
// knows no page and no API; it shares only the stream with the edge.
//
// The states of one delivery:
//
//	       hand        ready connection       claim         write, status line
//	due ─────────► at its destination ───► ready ───► claimed ──────────────► delivered | rejected | unknown
//	 ▲                     │ not sent                    │ deadline passed, nothing written
//	 ├─────────────────────┘ backoff                     │ (released)
//	 └───────────────────────────────────────────────────┘
//	due ── not sent, and RetryFor has passed since it was due, or since the end of a pause ──► give up
//	due ── not sent, or paused, and the outcome leaves the store within half an hour ──► give up
//	ready ── the outcome leaves the store within minutes ──► give up
//	give up ── give-up claim ──► undeliverable
//
// What must never happen, and what prevents it:
//
//   - A second POST. The claim is written once, before the first byte, by the process that sends. A process
//     that is not certain to own the claim never sends. A redelivery, a second dispatcher, a paused process
//     and a replayed stream all find the claim. Facts leave the store by their age, and never before their
//     outcome: nothing is sent of one that has left it, or is about to. The first is looked for after the
//     facts; the second is decided by the instant until which the claim allows a write. The client (package
//     callback) writes one request once and repeats nothing.
//   - A silent loss. A completion is acknowledged only once nothing is left to send, or a schedule that
//     brings it back is stored. If the owner of a claim ended, any process that reads the claim settles it as
//     unknown, after Claim.SettleAfter. A delivery whose messages are lost is found (reconciler).
//   - A claim spent on nothing. DNS, address check, TCP and TLS come before the claim. If they fail, provably
//     nothing was sent, and the delivery is tried again later.
//   - Endless work on a message that cannot be read. facts.ErrUnreadable defines what it means; it is
//     terminated after a few tries.
//   - A late write. An owner that finds its claim's deadline passed before it wrote does not write, and
//     releases the claim.
//
// The life of a delivery is delivery.go, in the order in which it happens. It sends through a sender
// (sender.go): over one of its destination's connections or, while a developer listens with a test key, to
// the developer instead of the receiver. Either way it sends after the claim, once, and with the same
// verdicts. The files above it bring deliveries there (fetcher.go, registry.go, destination.go); it uses the
// files below it. The files refer to each other from top to bottom: dispatcher, fetcher, meter, registry,
// destination, delivery, decide, deadlines, sender, connections, breaker, telemetry, config, held.
//
// An ended delivery becomes due again in two ways, each the choice of a person: under the policy
// at-least-once a result may name when the next attempt is due (Result.Next), and a person may send again (a
// resend fact). Only these facts count, read from the stream's leader: a message that names an attempt makes
// nothing due. Each attempt has its own claim, and all have the same webhook-id.
//
// Actors: two fetchers pull completions, and those whose next try has come due. The set of held deliveries
// keeps their messages from being delivered to another process. Each receiver host has one destination, made
// on first use and retired when idle. It alone owns the connections to the host and bounds how many
// deliveries to it are under way. It stops dialling for a while if the host does not answer (a circuit
// breaker, probed by one delivery) or if an operator has paused it. The meter measures the backlog, and the
// rescheduler stores again the schedules that JetStream has forgotten. The reconciler hands in deliveries
// that have not ended and of which no message is left. Queues and idle connections of a destination belong
// to one account each. Over all destinations the budget bounds the attempts under way and grants each
// account a fair share (package bounds). An account at its share waits by itself, without a goroutine. A
// pause below 30 s is a delayed nak; a longer one a message schedule, and the delivery's own message is
// acknowledged. Two contexts: the one of Serve stops taking work, and after DrainTimeout work under way is
// aborted; storing a result is never cancelled.
package dispatcher
