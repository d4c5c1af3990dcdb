package storefile

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/minio/highwayhash"
)

// A record of the server, version 2.15, is, in little endian, its length (4 bytes, with headersBit if the
// message has headers), its sequence (8, with the marks below), its time (8, Unix nanoseconds), the length of
// its subject (2), the subject, the length of the headers (4, if there are any), headers and data, and a
// checksum (8) over all but the lengths. The checksum's key holds the stream's name and the number of the
// block. The server only appends to a block; to remove something, it replaces the file.
const (
	recordHead  = 22
	checksum    = 8
	headersBit  = 1 << 31
	erasedMark  = 1 << 63
	deletedMark = 1 << 62
)

// Message is a message as a block holds it. Its slices are valid until the next one is read.
type Message struct {
	Sequence uint64
	Time     int64 // Unix nanoseconds
	Subject  []byte
	Header   []byte // as NATS writes it; empty: none
	Data     []byte
}

// record is one intact record.
type record struct {
	Message

	deleted bool // it only records that the message of its sequence was deleted
	erased  bool // its message was overwritten with random bytes
}

// ownLife reports whether the record's message has a TTL of its own.
func (r *record) ownLife() bool { return bytes.Contains(r.Header, []byte("\r\nNats-TTL:")) }

// decoder decodes the records of one block.
type decoder struct {
	hash *highwayhash.Digest64
	sum  [highwayhash.Size64]byte
}

func newDecoder(stream string, number uint32) *decoder {
	return &decoder{hash: newHash(fmt.Sprintf("%s-%d", stream, number))}
}

// newHash returns the server's checksum under the key of a name.
func newHash(name string) *highwayhash.Digest64 {
	key := sha256.Sum256([]byte(name))
	h, err := highwayhash.NewDigest64(key[:])
	if err != nil {
		panic("storefile: " + err.Error()) // only for wrong key lengths
	}
	return h
}

// recordSize returns the size that the record at the beginning of b states; 0 if no record can have it. b
// holds at least the head.
func recordSize(b []byte) int {
	le := binary.LittleEndian
	size, minimum := int(le.Uint32(b)&^headersBit), recordHead+int(le.Uint16(b[20:]))+checksum
	if le.Uint32(b)&headersBit != 0 {
		minimum += 4
	}
	if size < minimum {
		return 0
	}
	return size
}

// record decodes the record that b consists of, and reports whether it is intact.
func (d *decoder) record(b []byte) (r record, ok bool) {
	head, le := b[:recordHead], binary.LittleEndian
	subject := recordHead + int(le.Uint16(head[20:]))
	r.Subject, r.Data = b[recordHead:subject], b[subject:len(b)-checksum]
	headers := le.Uint32(head)&headersBit != 0
	length := uint32(0)
	if headers {
		length, r.Data = le.Uint32(r.Data), r.Data[4:]
	}
	if !d.intact(head[4:20], r.Subject, r.Data, b[len(b)-checksum:]) {
		return r, false
	}
	sequence := le.Uint64(head[4:])
	r.Sequence, r.Time = sequence&^(erasedMark|deletedMark),
		int64(le.Uint64(head[12:])) //nolint:gosec // as the server wrote it
	r.deleted, r.erased = sequence&deletedMark != 0, sequence&erasedMark != 0
	if !headers || r.erased {
		return r, true
	}
	// The length of the headers is not under the checksum.
	if int64(length) > int64(len(r.Data)) {
		return r, false
	}
	r.Header, r.Data = r.Data[:length], r.Data[length:]
	return r, bytes.HasPrefix(r.Header, []byte("NATS/1.0")) && bytes.HasSuffix(r.Header, []byte("\r\n\r\n"))
}

// intact reports whether sum is the checksum of the parts of a record.
func (d *decoder) intact(numbers, subject, rest, sum []byte) bool {
	d.hash.Reset()
	_, _ = d.hash.Write(numbers)
	_, _ = d.hash.Write(subject)
	_, _ = d.hash.Write(rest)
	return bytes.Equal(d.hash.Sum(d.sum[:0]), sum)
}
