package natsconf

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// replacesHeader is carried by a message of Replace, so that whoever copies it to another store does there
// what was done here.
const replacesHeader = "Verifyd-Replaces"

// Replaces reports whether a message was stored by Replace.
func Replaces(h nats.Header) bool { return h.Get(replacesHeader) != "" }

// Replace stores a message in place of the one of a sequence, the last on its subject, and destroys what was
// there before. Where it fails in between, both are there: a repeat of Destroy up to the newer one ends it.
// Its errors are those of PublishOne and Destroy.
func (c *Conn) Replace(ctx context.Context, stream string, m *nats.Msg, last uint64) error {
	if m.Header == nil {
		m.Header = nats.Header{}
	}
	m.Header.Set(replacesHeader, "1")
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(last, 10))
	if err := c.PublishOne(ctx, stream, m); err != nil {
		return err
	}
	return c.Destroy(ctx, stream, m.Subject, last+1)
}

// Destroy overwrites in the servers' files what is on a stream's subjects that match, up to before a
// sequence (0: all of it), and takes it away. A purge leaves the bytes until the server compacts the file.
// What a file system keeps of a file that was written anew, and a cluster's raft logs until the next
// snapshot, a minute or a few later, it does not reach. A repeat is harmless. Its errors are ErrUnavailable
// and those of the server's API.
func (c *Conn) Destroy(ctx context.Context, stream, subject string, before uint64) error {
	s, err := c.stream(ctx, stream)
	if err != nil {
		return err
	}
	for from := uint64(1); ; from++ {
		m, err := c.Next(ctx, stream, subject, from)
		if errors.Is(err, ErrNotFound) || err == nil && before > 0 && m.Sequence >= before {
			return nil
		}
		if err != nil {
			return err
		}
		from = m.Sequence
		if err := s.SecureDeleteMsg(ctx, from); err != nil {
			// or somebody else was faster
			if m, rerr := c.Next(ctx, stream, subject, from); rerr == nil && m.Sequence == from {
				return fmt.Errorf("overwrite message %d of %s: %w", from, stream, err)
			}
		}
	}
}
