package wire

import (
	"encoding/binary"
	"net"
)

// recordHeader is the length of a TLS record's header: type, version, length (RFC 8446 §5.1).
const recordHeader = 5

// Records is the connection below a TLS session. It follows the records that the session reads: crypto/tls
// keeps the beginning of a record to itself until the rest has come, and does not report it.
type Records struct {
	net.Conn

	header [recordHeader]byte
	got    int // bytes of the header that have come
	left   int // bytes of the record's content that have not
}

// Read reads and follows.
func (r *Records) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	r.follow(b[:n])
	return n, err
}

func (r *Records) follow(b []byte) {
	for len(b) > 0 {
		if r.left > 0 {
			n := min(r.left, len(b))
			r.left, b = r.left-n, b[n:]
			continue
		}
		n := copy(r.header[r.got:], b)
		r.got, b = r.got+n, b[n:]
		if r.got == recordHeader {
			r.got, r.left = 0, int(binary.BigEndian.Uint16(r.header[3:]))
		}
	}
}

// Within reports whether a record has begun to arrive and has not arrived whole.
func (r *Records) Within() bool { return r.got > 0 || r.left > 0 }
