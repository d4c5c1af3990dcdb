// Package account knows the integrators: their accounts, API keys and callback signing secrets, and mirrors all of them in memory
// so that a request reads nothing from JetStream.
//
// The laws:
//
//   - An API key is shown once and stored as SHA-256. What does not have the form of a key, checksum included, is refused
//     without a look-up.
//   - A key is revoked by putting a revoked record over it, never by deleting it: a deleted key-value entry can come back from
//     an old replica. The mirror never lets a revoked digest live again.
//   - The Mirror is the only reader on the path of a request. Until it has seen everything there is, it knows nobody.
//   - Signing secrets are sealed in storage and opened only in memory.
package account
