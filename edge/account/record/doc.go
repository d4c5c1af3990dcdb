// Package record is accounts and API keys as they are stored: versions, names of members, what is sealed. It
// reads records of every earlier build, and does not misread those of a newer one.
//
// Signing secrets are sealed in storage and opened only in memory.
package record
