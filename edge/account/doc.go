// Package account is the tenants: their accounts, members, API keys and callback signing secrets,
// keeps the log of who changed what, and mirrors accounts and keys in memory so that a request reads nothing
// from JetStream.
//
// The laws:
//
//   - An API key is shown once and stored as SHA-256. What does not have the form of a key, checksum
//     included, is refused without a look-up.
//   - A key is revoked by putting a revoked record over it, never by deleting it: a deleted key-value entry
//     can come back from an old replica. The mirror never lets a revoked digest live again.
//   - A key that expires, by its own date or because it was rolled, ends at that instant, which the look-up
//     compares with the clock. An expiry only ever comes nearer.
//   - A key and the one that takes its place are stored together or not at all.
//   - The Mirror is the only reader on the path of a request. Until it has read everything, it knows
//     nobody.
//   - Signing secrets are sealed in storage and opened only in memory. One signs, or two while one rotates
//     out, never three.
//   - Every change names who makes it; what their role allows (role.go has the table) is judged by the
//     account as it is stored, not as a mirror shows it. No account that has an owner loses its last one.
//   - Every change of an account or a key is one compare-and-set with a record of it inside. The record is
//     written to the audit log before the change is acknowledged. A process that dies in between leaves the
//     change with its record, which the next change of the same thing, or the next start of a service, writes
//     to the log. A record is never written twice, and never removed.
//   - Tokens of invites and login links are stored as digests. An invite is spent by the write that makes a
//     member, a login link by a fact that is written once.
package account
