// Package receivertest judges an integrator's receiver: it sends the callbacks that a receiver must accept
// and those that it must refuse, and reports what came back, and why it matters.
//
// The laws:
//
//   - Requests are sent with the client of real callbacks, with its guard, its TLS and its limits. A receiver
//     that passes here accepts what verifyd sends.
//   - Every callback is marked as a test, in its webhook-id and by verifyd-test: true, so that a receiver can
//     distinguish it from a person's.
//   - What cannot be seen from outside is not judged: the report says what to look at.
//   - A receiver that speaks plain HTTP on this machine is reached through a front that speaks TLS; the
//     client itself speaks only https.
package receivertest
