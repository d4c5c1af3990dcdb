// Package wire is the TCP connection below TLS, for clients that send a request once. It counts the bytes
// that the kernel took, which is how "nothing left" is known for sure. It also looks, without waiting, at
// what has arrived: it recognizes a kept connection that its server has closed before a request is written,
// and unsolicited bytes are never read as the answer to the next request.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// probeTimeout bounds the one thing a probe may wait for: room to answer a TLS key update.
const probeTimeout = 100 * time.Millisecond

// ErrUnsolicited reports that bytes came before a request was sent. They must never be read as the answer to
// a request that was not sent yet.
var ErrUnsolicited = errors.New("bytes came before a request was sent")

// Wire is one connection. It belongs to one goroutine, except for Close.
type Wire struct {
	net.Conn

	raw     syscall.RawConn // nil: no system socket
	sent    int64           // bytes that the kernel accepted for sending
	probing bool            // reads return errWouldBlock instead of waiting
}

// errWouldBlock is what a probing read returns when nothing has arrived. It is a temporary net.Error:
// crypto/tls then forgets it and goes on with the next read; any other error would end the session
// permanently.
var errWouldBlock net.Error = wouldBlockError{}

type wouldBlockError struct{}

func (wouldBlockError) Error() string   { return "nothing has arrived" }
func (wouldBlockError) Timeout() bool   { return true }
func (wouldBlockError) Temporary() bool { return true }

// New returns the wire of a connection. On one that is not a system socket, such as one in memory, a look at
// what has arrived waits for a millisecond.
func New(conn net.Conn) (*Wire, error) {
	system, ok := conn.(syscall.Conn)
	if !ok {
		return &Wire{Conn: conn}, nil
	}
	raw, err := system.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("probe connection: %w", err)
	}
	return &Wire{Conn: conn, raw: raw}, nil
}

// Sent returns how many bytes the kernel took.
func (w *Wire) Sent() int64 { return w.sent }

// Write sends b and counts what the kernel took of it.
func (w *Wire) Write(b []byte) (int, error) {
	n, err := w.Conn.Write(b)
	w.sent += int64(n)
	return n, err
}

// Read waits for bytes, or, while probing, takes only what has arrived.
func (w *Wire) Read(b []byte) (int, error) {
	if w.probing {
		return w.readArrived(b)
	}
	return w.Conn.Read(b)
}

// Probe reports, without waiting, whether a request may be written to the session that is spoken over the
// wire, which is the wire itself if there is no TLS. It returns nil if the other side has neither closed it
// nor sent anything, ErrUnsolicited if bytes for a reader have come, and otherwise what ended it. It reads
// what TLS itself has sent, such as session tickets. The beginning of a record does not count as bytes of the
// session yet; see Records. It leaves a deadline set.
func (w *Wire) Probe(session io.Reader) error {
	if err := w.SetDeadline(time.Now().Add(probeTimeout)); err != nil {
		return err
	}
	w.probing = true
	n, err := session.Read(make([]byte, 1))
	w.probing = false
	switch {
	case n > 0:
		return ErrUnsolicited
	case errors.Is(err, errWouldBlock):
		return nil
	}
	return err
}

// readSoon reads for a millisecond: if a connection cannot be read without waiting, the bytes that have
// arrived are there within it.
func (w *Wire) readSoon(b []byte) (int, error) {
	if err := w.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		return 0, err
	}
	n, err := w.Conn.Read(b)
	if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, errWouldBlock
	}
	return n, err
}

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
