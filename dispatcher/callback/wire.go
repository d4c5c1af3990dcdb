package callback

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// wire is the TCP connection below TLS. It counts the bytes that the kernel took, which is how "nothing
// left" is known for sure, and it can read without waiting.
type wire struct {
	net.Conn
	raw     syscall.RawConn
	sent    int64 // bytes that the kernel accepted for sending
	probing bool  // reads return errWouldBlock instead of waiting
}

// errWouldBlock is what a probing read returns when nothing has arrived. It is a temporary net.Error:
// crypto/tls then forgets it and goes on with the next read; any other error would end the session for good.
var errWouldBlock net.Error = wouldBlockError{}

type wouldBlockError struct{}

func (wouldBlockError) Error() string   { return "nothing has arrived" }
func (wouldBlockError) Timeout() bool   { return true }
func (wouldBlockError) Temporary() bool { return true }

func newWire(conn net.Conn) (*wire, error) {
	system, ok := conn.(syscall.Conn)
	if !ok {
		return nil, errors.New("probe connection: not a system socket")
	}
	raw, err := system.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("probe connection: %w", err)
	}
	return &wire{Conn: conn, raw: raw}, nil
}

// Write sends b and counts what the kernel took of it.
func (w *wire) Write(b []byte) (int, error) {
	n, err := w.Conn.Write(b)
	w.sent += int64(n)
	return n, err
}

// Read waits for bytes, or, while probing, takes only what has arrived.
func (w *wire) Read(b []byte) (int, error) {
	if w.probing {
		return w.readArrived(b)
	}
	return w.Conn.Read(b)
}
