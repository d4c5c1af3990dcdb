// Package storefile reads what the embedded server's files hold, without the server: each record's checksum,
// and the sequences that there are. The server itself cuts a damaged file off at the first record that it
// cannot read, and says so in its log alone; here the damage is found before that, and what stands behind it
// is kept. A Tail follows what is appended, for the copy that is kept elsewhere.
//
// A stream is a folder with its messages in block files, msgs/<n>.blk, which are records one after the other
// (record.go). Sequences rise from record to record and from block to block. Nothing here imports the
// server: a test writes streams with it and reads them with this package.
package storefile
