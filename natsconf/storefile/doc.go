// Package storefile reads what the embedded server's files hold, without the server: each record's checksum,
// and the sequences that there are. The server itself truncates a damaged file at the first record that it
// cannot read, and reports that only in its log. This package finds the damage before the server starts, and
// keeps the records after it. A Tail follows appended records, for the continuous copy.
//
// A stream is a folder with its messages in block files, msgs/<n>.blk, which are sequences of records
// (record.go). Sequences rise from record to record and from block to block. Nothing here imports the server:
// a test writes streams with it and reads them with this package.
package storefile
