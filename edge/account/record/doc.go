// Package record is accounts and API keys as they lie in the store: versions, names of members, what is
// sealed. It reads what every earlier build has written, and does not misread what a newer one has.
//
// Signing secrets are sealed in storage and opened only in memory.
package record
