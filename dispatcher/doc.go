// Package dispatcher sends all callbacks: it takes completions from JetStream and sends each one's single
// POST. It knows no page and no API; it shares only the stream with the edge.
//
// The states of one delivery:
//
//	       hand        ready connection       claim         write, status line
//	due ─────────► at its destination ───► ready ───► claimed ──────────────► delivered | rejected | unknown
//	 ▲                     │ not sent                    │ deadline passed, nothing written
//	 ├─────────────────────┘ backoff                     │ (released)
//	 └───────────────────────────────────────────────────┘
//	due ── not sent, and CompletedAt, or the end of a pause, + RetryFor has passed ──► give up
//	due ── not sent, or paused, and the outcome leaves the store within half an hour ──► give up
//	give up ── give-up claim ──► undeliverable
//
// What must never happen, and what prevents it:
//
//   - A second POST. The claim is written once, before the first byte, by the process that sends; one that
//     does not certainly own it never sends. A redelivery, a second dispatcher, a paused process and a
//     replayed stream all find the claim. The client (package callback) writes one request once and repeats
//     nothing.
//   - A silent loss. A completion is acknowledged only after its result is stored. The claim of an owner
//     that ended is settled as unknown, after Claim.SettleAfter, by any process that reads it.
//   - A claim spent on nothing. DNS, address check, TCP and TLS come before the claim; where they fail,
//     provably nothing was sent, and the delivery is tried again later.
//   - Endless work on what nobody can read. Its meaning is defined by facts.ErrUnreadable; its message is
//     terminated after a few tries.
//   - A late write. An owner that finds its claim's deadline passed before it wrote does not write, and
//     releases the claim.
//
// The life of a delivery is delivery.go, in the order in which it happens. It sends by a sender: over a
// connection of its destination's (sender.go) or, while a developer listens with a test key, to them instead
// of to the receiver (listen.go): after the claim, once, and with the same verdicts. Above it is what brings
// it there: fetcher.go, registry.go, destination.go; below it what it uses. The files refer to each other
// from top to bottom: dispatcher, fetcher, meter, registry, destination, delivery, listen, decide, sender,
// connections, breaker, telemetry, config, inflight.
//
// An ended delivery becomes due again in two ways, both chosen by somebody: under the policy at-least-once a
// result may name when the next attempt is due (Result.Next); and a person may send again (a resend fact).
// Each attempt has its own claim, and all have the same webhook-id.
//
// Actors: two fetchers pull completions, and those whose next try has come due; the in-flight set keeps what
// is held from being delivered to another process; each receiver host has one destination, made on first use
// and retired when idle, that alone owns the connections to it, bounds how many deliveries to it are under
// way, and stops dialling for a while where nobody answers (a circuit breaker, probed by one delivery) or
// where an operator has paused it; the meter measures the backlog. Queues and idle connections of a
// destination belong to one account each. Over all destinations the budget bounds the attempts under way and
// returns each account a fair share (package bounds); an account at its share waits by itself, without a
// goroutine. A pause below 30 s is a delayed nak; a longer one a message schedule, and the delivery's own
// message is acknowledged. Two contexts: the one of Serve stops taking work, and after DrainTimeout work
// under way is aborted; storing a result is never cancelled.
package dispatcher
