package natsconf

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf/wait"
)

const (
	// maxTries bounds how often a conditional write is tried because another one came first. With the pauses
	// that takes about six seconds.
	maxTries = 50
	// maxUnanswered bounds how many tries of one write may go unanswered, for up to ackTimeout each, if the
	// caller does not wait (package wait).
	maxUnanswered = 3
	// minTryPause and maxTryPause bound the pause between two tries. While another caller's publish is in
	// flight the server refuses ours, and a read does not show it yet; on a busy cluster that takes a tenth
	// of a second.
	minTryPause, maxTryPause = 20 * time.Millisecond, 200 * time.Millisecond
	// updateNonce is the header by which an update recognizes its own message when the answer was lost, as a
	// writer does in package once.
	updateNonce = "Verifyd-Nonce"
)

// Update replaces the newest message of a subject with what edit makes of it, unless another write comes
// first: then it begins again. Its errors are edit's, ErrUnavailable, also when others came first too often,
// ErrStoreFull, and ErrUncertain: the message may be stored, or was stored and replaced.
//
// A write that got no answer is resolved by a read from the leader. If its message is there, it succeeded. If
// nothing has changed, the same message is published again: at most one of the two is stored. If another
// message is there, it is not known whether that replaced ours, and the error is ErrUncertain.
//
// A fact that is written once goes through package once instead: it is written without a read before, and a
// writer that finds another's message there has lost, and does not begin again.
func (c *Conn) Update(ctx context.Context, stream, subject string,
	edit func(current *jetstream.RawStreamMsg) (*nats.Msg, error)) error {
	u := update{conn: c, stream: stream, subject: subject, edit: edit,
		publish: func(ctx context.Context, m *nats.Msg) error {
			return c.PublishOne(ctx, stream, m)
		}}
	return u.run(ctx)
}

// Update is Conn.Update for a subject of the writer's stream.
func (w *Writer) Update(ctx context.Context, subject string,
	edit func(current *jetstream.RawStreamMsg) (*nats.Msg, error)) error {
	u := update{conn: w.conn, stream: w.stream, subject: subject, edit: edit,
		publish: func(ctx context.Context, m *nats.Msg) error {
			_, err := w.Publish(ctx, m)
			return err
		}}
	return u.run(ctx)
}

// Retry repeats a conditional write that reads before it writes while its error is ErrConflict, with the
// bound and the pauses of Update. It is for a caller that changes more than one message, or knows better than
// Update what an uncertain write means. Its errors are try's, and ErrUnavailable when others came first too
// often.
func Retry(ctx context.Context, try func() error) error {
	pause := minTryPause
	for range maxTries {
		if err := try(); !errors.Is(err, ErrConflict) || errors.Is(err, ErrUncertain) {
			return err
		}
		if over := wait.Pause(ctx, pause/2+mathrand.N(pause/2)); over != nil { //nolint:gosec // jitter
			return fmt.Errorf("%w: another write came first: %w", ErrUnavailable, over)
		}
		pause = min(2*pause, maxTryPause)
	}
	return fmt.Errorf("%w: another write came first, %d times", ErrUnavailable, maxTries)
}

// update is one Update.
type update struct {
	conn            *Conn
	stream, subject string
	edit            func(*jetstream.RawStreamMsg) (*nats.Msg, error)
	publish         func(context.Context, *nats.Msg) error

	nonce      string
	next       *nats.Msg // made from the message of sequence last
	last       uint64
	unanswered int
}

func (u *update) run(ctx context.Context) error {
	u.nonce = rand.Text()
	err := Retry(ctx, func() error { return u.try(ctx) })
	if u.unanswered > 0 && err != nil && !errors.Is(err, ErrUncertain) { // an earlier try may be stored yet
		err = fmt.Errorf("%w: %w", ErrUncertain, err)
	}
	return err
}

// try reads and writes once. Its error is ErrConflict if it is to be tried again.
func (u *update) try(ctx context.Context) error {
	current, err := u.conn.Last(ctx, u.stream, u.subject)
	last := uint64(0)
	switch {
	case err == nil:
		last = current.Sequence
	case !errors.Is(err, ErrNotFound):
		return err
	}
	switch {
	case current != nil && current.Header.Get(updateNonce) == u.nonce:
		return nil
	case u.unanswered > 0 && last != u.last:
		return fmt.Errorf("write to %s: %w, and another message has followed", u.stream, ErrUncertain)
	}
	if u.next == nil || last != u.last {
		if current != nil && IsMarker(current.Header) {
			current = nil
		}
		if u.next, err = u.edit(current); err != nil || u.next == nil {
			return err
		}
		u.last = last
		u.prepare()
	}
	if err = u.publish(ctx, u.next); !errors.Is(err, ErrUncertain) {
		return err
	}
	if u.unanswered++; u.unanswered >= maxUnanswered && !wait.Is(ctx) || ctx.Err() != nil {
		return err
	}
	return ErrConflict
}

// prepare puts the condition on the message.
func (u *update) prepare() {
	u.next.Subject = u.subject
	if u.next.Header == nil {
		u.next.Header = nats.Header{}
	}
	u.next.Header.Set(updateNonce, u.nonce)
	u.next.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(u.last, 10))
}

// replacesHeader is carried by a message of Replace, so that a copy to another store repeats there what was
// done here.
const replacesHeader = "Verifyd-Replaces"

// Replaces reports whether a message was stored by Replace.
func Replaces(h nats.Header) bool { return h.Get(replacesHeader) != "" }

// Replace stores a message in place of the one of a sequence, the last on its subject, and destroys the
// earlier ones. If it fails in between, both are there: a repeat of Destroy up to the newer one completes it.
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

// Destroy overwrites in the servers' files the messages on a stream's subjects that match, up to before a
// sequence (0: all of them), and removes them. A purge leaves the bytes until the server compacts the file.
// Destroy does not reach what a file system keeps of a rewritten file, or a cluster's raft logs until the
// next snapshot, a minute or a few later. A repeat is harmless. Its errors are ErrUnavailable and those of
// the server's API.
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
			// or another caller was faster
			if m, rerr := c.Next(ctx, stream, subject, from); rerr == nil && m.Sequence == from {
				return fmt.Errorf("overwrite message %d of %s: %w", from, stream, err)
			}
		}
	}
}
