package callback

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"time"
)

// WaitReadable lets tests outside the package wait until something has arrived on the connection, without
// reading it.
func WaitReadable(cn *Conn) error {
	_ = cn.wire.SetReadDeadline(time.Now().Add(10 * time.Second))
	raw, err := cn.wire.Conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	return raw.Read(func(fd uintptr) bool {
		_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
		return !errors.Is(err, syscall.EAGAIN)
	})
}

// Address returns the receiver's address that was dialled, ip:port.
func (cn *Conn) Address() string { return cn.address }

// DidResume reports whether the TLS session was resumed.
func DidResume(cn *Conn) bool { return cn.tls.ConnectionState().DidResume }

// Stall makes connections to one address hang in the middle, as when nothing answers a SYN, until they are
// given up or end is called.
func Stall(c *Client, ip string) (end func()) {
	hang := make(chan struct{})
	c.dialer.ControlContext = func(ctx context.Context, network, address string, raw syscall.RawConn) error {
		if strings.HasPrefix(address, ip+":") {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-hang:
				return syscall.ETIMEDOUT
			}
		}
		return c.config.Policy.Control(network, address, raw)
	}
	return func() { close(hang) }
}

// Watch calls seen for each address that the client's own guard lets a socket connect to, right before it
// does.
func Watch(c *Client, seen func(address string)) {
	guard := c.dialer.Control
	c.dialer.ControlContext = func(_ context.Context, network, address string, raw syscall.RawConn) error {
		if guard != nil {
			if err := guard(network, address, raw); err != nil {
				return err
			}
		}
		seen(address)
		return nil
	}
}

// CutAfter makes the connection fail once the kernel has accepted n more bytes.
func CutAfter(cn *Conn, n int) { cn.wire.Conn = &cutConn{Conn: cn.wire.Conn, left: n} }

type cutConn struct {
	net.Conn
	left int
}

func (c *cutConn) Write(b []byte) (int, error) {
	if len(b) <= c.left {
		c.left -= len(b)
		return c.Conn.Write(b)
	}
	n, err := c.Conn.Write(b[:c.left])
	c.left = 0
	if err == nil {
		err = &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}
	}
	return n, err
}
