package simtest

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Conn is one end of a connection in memory. A write never blocks, like a write to a socket with free buffer
// space, so that a caller that holds a lock does not stop virtual time. Each end has one reader.
type Conn struct {
	in, out       *half
	local, remote net.Addr
}

// Pipe returns the two ends of a connection between two addresses.
func Pipe(local, remote net.Addr) (near, far *Conn) {
	a, b := newHalf(), newHalf()
	return &Conn{in: a, out: b, local: local, remote: remote},
		&Conn{in: b, out: a, local: remote, remote: local}
}

// half is one direction of a connection.
type half struct {
	changed chan struct{} // a token for the reader when anything below has changed

	mu       sync.Mutex
	bytes    []byte
	ended    error // the reader's error after the bytes; nil: it waits
	refused  error // the writer's error; nil: it may write
	deadline time.Time
}

func newHalf() *half { return &half{changed: make(chan struct{}, 1)} }

func (h *half) change(do func()) {
	h.mu.Lock()
	do()
	h.mu.Unlock()
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// take reads the bytes that are available; wait is how long to wait for more, 0 forever.
func (h *half) take(b []byte) (n int, wait time.Duration, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.deadline.IsZero() {
		if wait = time.Until(h.deadline); wait <= 0 {
			return 0, 0, os.ErrDeadlineExceeded
		}
	}
	if len(h.bytes) > 0 {
		n = copy(b, h.bytes)
		h.bytes = h.bytes[n:]
		return n, 0, nil
	}
	return 0, wait, h.ended
}

// Read waits for bytes, the end or the deadline.
func (c *Conn) Read(b []byte) (int, error) {
	for {
		n, wait, err := c.in.take(b)
		if n > 0 || err != nil || len(b) == 0 {
			return n, err
		}
		if wait == 0 {
			<-c.in.changed
			continue
		}
		late := time.NewTimer(wait)
		select {
		case <-c.in.changed:
		case <-late.C:
		}
		late.Stop()
	}
}

// Write does not block.
func (c *Conn) Write(b []byte) (int, error) {
	var err error
	c.out.change(func() {
		if err = c.out.refused; err == nil {
			c.out.bytes = append(c.out.bytes, b...)
		}
	})
	if err != nil {
		return 0, err
	}
	return len(b), nil
}

// Close ends the connection: the other end reads what was written, and then io.EOF.
func (c *Conn) Close() error {
	c.out.change(func() { c.out.end(io.EOF, net.ErrClosed) })
	c.in.change(func() { c.in.end(net.ErrClosed, syscall.EPIPE) })
	return nil
}

// Reset cuts the connection: both ends get an error, and unread bytes are lost.
func (c *Conn) Reset() {
	for _, h := range []*half{c.in, c.out} {
		h.change(func() { h.bytes = nil; h.end(syscall.ECONNRESET, syscall.ECONNRESET) })
	}
}

// end records how the connection ended; only the first call counts.
func (h *half) end(reader, writer error) {
	if h.ended == nil {
		h.ended = reader
	}
	if h.refused == nil {
		h.refused = writer
	}
}

// SetDeadline calls SetReadDeadline: a write never blocks.
func (c *Conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetReadDeadline sets the deadline of reads.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.in.change(func() { c.in.deadline = t })
	return nil
}

// SetWriteDeadline does nothing.
func (c *Conn) SetWriteDeadline(time.Time) error { return nil }

// LocalAddr returns this end's address.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the other end's address.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }
