//go:build unix

package wire

import (
	"errors"
	"io"
	"syscall"
)

// readArrived reads without waiting. The system call is made directly: a read with a deadline in the past
// returns before it has looked at the socket.
func (w *Wire) readArrived(b []byte) (int, error) {
	if w.raw == nil {
		return w.readSoon(b)
	}
	var n int
	var err error
	read := func(fd uintptr) bool {
		for {
			if n, err = syscall.Read(int(fd), b); !errors.Is(err, syscall.EINTR) {
				return true // never wait for the poller
			}
		}
	}
	switch rawErr := w.raw.Read(read); {
	case rawErr != nil:
		return 0, rawErr
	case errors.Is(err, syscall.EAGAIN):
		return 0, errWouldBlock
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}
