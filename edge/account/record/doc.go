// Package record is accounts and API keys as they are stored: versions, what is sealed, and what has another
// form. It reads records of every earlier build, and does not misread those of a newer one.
//
// Signing secrets are sealed in storage and opened only in memory.
package record
