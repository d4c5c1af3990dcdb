// Package accountstore makes every change of accounts, members, invites, API keys and signing secrets.
//
// The laws:
//
//   - Every change names who makes it; what their role allows (package access has the table) is judged by the
//     account as it is stored, not as a mirror shows it.
//   - Every change of an account or a key is one compare-and-set with a record of it inside, which is in the
//     audit log when the change is acknowledged (package audit).
//   - A key is revoked by putting a revoked record over it, never by deleting it: a deleted key-value entry
//     can come back from an old replica.
//   - A key and the one that takes its place are stored together or not at all.
//   - An invite is spent by the write that makes a member.
//
// Errors that are named without a package are edge/account's, and ErrNotAllowed is access's.
package accountstore
