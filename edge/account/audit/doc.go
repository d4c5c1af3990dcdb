// Package audit is the log of who changed what in an account, or in the whole service.
//
// The laws:
//
//   - The record of a change is stored in the changed entry itself, by one compare-and-set, and is written to
//     the log before the change is acknowledged. A process that dies in between leaves the change with its
//     record. The next change of the same entry, or the next start of a service, writes it to the log
//     (Repair).
//   - What takes a right away waits for no log: if the log does not answer, the entry keeps the record of the
//     change behind the last one, and Repair gives it its number.
//   - A record is never written twice, and never removed.
package audit
