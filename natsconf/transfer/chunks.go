package transfer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"verifyd/natsconf/secretbox"
)

const (
	// sealUse is the use of the box that seals a backup's chunks; their owner is the backup, the chunk's
	// number, and whether it is the last one. So a chunk that is changed, missing, duplicated or from another
	// backup does not open, nor does a truncated backup.
	sealUse = "backup"
	// chunkBytes is how much of a backup is sealed at once.
	chunkBytes = 64 << 10
	// maxChunk bounds what a reader accepts as a chunk: its text, the seal, and room to spare.
	maxChunk = chunkBytes + 1<<10
)

// ErrDamaged is returned for a backup that was altered or truncated since it was written.
var ErrDamaged = errors.New("the backup is damaged: it was altered or cut short")

// owner names a chunk.
func owner(backup string, number int, last bool) string {
	return fmt.Sprintf("%s/%d/%t", backup, number, last)
}

// chunkWriter seals what is written to it, chunk by chunk: four bytes of length, big-endian, then the box.
type chunkWriter struct {
	w      io.Writer
	box    *secretbox.Box
	backup string
	number int
	buffer []byte
}

func (c *chunkWriter) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		if len(c.buffer) == chunkBytes {
			if err := c.flush(false); err != nil {
				return n, err
			}
		}
		some := min(len(p), chunkBytes-len(c.buffer))
		c.buffer = append(c.buffer, p[:some]...)
		p, n = p[some:], n+some
	}
	return n, nil
}

// Close writes the last chunk.
func (c *chunkWriter) Close() error { return c.flush(true) }

func (c *chunkWriter) flush(last bool) error {
	box := c.box.Seal(c.buffer, owner(c.backup, c.number, last))
	c.buffer, c.number = c.buffer[:0], c.number+1
	return writeBox(c.w, box)
}

// chunkReader opens what a chunkWriter has sealed.
type chunkReader struct {
	r      io.Reader
	box    *secretbox.Box
	backup string
	number int
	plain  []byte
	ended  bool
}

func (c *chunkReader) Read(p []byte) (int, error) {
	for len(c.plain) == 0 {
		if c.ended {
			return 0, io.EOF
		}
		if err := c.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.plain)
	c.plain = c.plain[n:]
	return n, nil
}

func (c *chunkReader) next() error {
	box, err := readBox(c.r, maxChunk)
	if err != nil {
		return err
	}
	plain, err := c.box.Open(box, owner(c.backup, c.number, false))
	if err != nil {
		plain, err = c.box.Open(box, owner(c.backup, c.number, true))
		c.ended = true
	}
	if err != nil {
		return ErrDamaged
	}
	c.plain, c.number = plain, c.number+1
	if c.ended {
		if n, _ := c.r.Read(make([]byte, 1)); n > 0 {
			return ErrDamaged // something was appended after the end
		}
	}
	return nil
}

// writeBox writes a box after its length.
func writeBox(w io.Writer, box []byte) error {
	length := binary.BigEndian.AppendUint32(nil, uint32(len(box))) //nolint:gosec // a chunk or a frame
	if _, err := w.Write(length); err != nil {
		return err
	}
	_, err := w.Write(box)
	return err
}

// readBox reads what writeBox has written, at most limit bytes of it. Its errors are ErrDamaged and r's.
func readBox(r io.Reader, limit int64) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, damaged(err)
	}
	size := int64(binary.BigEndian.Uint32(length[:]))
	if size > limit {
		return nil, ErrDamaged
	}
	box := make([]byte, size)
	if _, err := io.ReadFull(r, box); err != nil {
		return nil, damaged(err)
	}
	return box, nil
}

// damaged distinguishes a file that ends too early from one that cannot be read.
func damaged(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrDamaged
	}
	return err
}
