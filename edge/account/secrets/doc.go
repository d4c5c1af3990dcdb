// Package secrets makes what is shown once or kept sealed, and what is stored of it: API keys, tokens of
// invites and login links, callback signing secrets, and the ids that are made from digests. It knows no
// accounts.
//
// An API key is shown once and stored as SHA-256. What does not have the form of a key, checksum included, is
// refused without a look-up.
package secrets
