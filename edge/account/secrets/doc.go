// Package secrets makes secrets that are shown once or kept sealed, and what is stored of them: API keys,
// tokens of invites and login links, callback signing secrets, and the ids that are made from digests. It
// knows no accounts.
//
// An API key is shown once and stored as SHA-256. A string that does not have the form of a key, checksum
// included, is refused without a look-up.
package secrets
