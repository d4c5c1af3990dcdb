//go:build !unix

package wire

import (
	"errors"
	"os"
	"time"
)

// readArrived reads for a millisecond: where sockets cannot be read without waiting, what has arrived is
// there within it.
func (w *Wire) readArrived(b []byte) (int, error) {
	if err := w.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		return 0, err
	}
	n, err := w.Conn.Read(b)
	if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, errWouldBlock
	}
	return n, err
}
