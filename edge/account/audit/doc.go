// Package audit is the log of who changed what in an account, or in the whole service.
//
// The laws:
//
//   - The record of a change lies in what was changed, which is one compare-and-set, and is written to the
//     log before the change is acknowledged. A process that dies in between leaves the change with its
//     record, which the next change of the same thing, or the next start of a service, writes to the log
//     (Settle).
//   - A record is never written twice, and never removed.
package audit
