package natsconf

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf/wait"
)

// PublishOne stores one message of a stream that is seldom written, and so has no Writer. A batch of one
// message would be staged in files first. Its errors are those of PublishBatch.
func (c *Conn) PublishOne(ctx context.Context, stream string, m *nats.Msg) error {
	return c.retryUntilAccepted(ctx, stream, func() error {
		// A message that was sent to a server that has vanished is not answered, however much time its caller
		// has.
		ctx, cancel := context.WithTimeout(ctx, ackTimeout)
		defer cancel()
		_, err := c.JS.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0))
		if err == nil {
			return c.Durable(stream)
		}
		return fmt.Errorf("publish to %s: %w", stream, Kind(err))
	})
}

// PublishBatch stores all of the messages or none, as one atomic batch of a stream that takes them. It is
// for the few places where two entries must change together; streams that are written much have a Writer. Its
// errors are ErrConflict if one of the messages expects another last message of its subject, ErrUncertain,
// ErrUnavailable and ErrStoreFull.
func (c *Conn) PublishBatch(ctx context.Context, stream string, msgs ...*nats.Msg) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("publish to %s: %w: %w", stream, ErrUnavailable, err)
	}
	pending := make([]*pendingPublish, len(msgs))
	for i, m := range msgs {
		pending[i] = &pendingPublish{msg: m}
	}
	w := Writer{conn: c, stream: stream} // never served: the batch is whole already
	return c.retryUntilAccepted(ctx, stream, func() error {
		err := w.writeBatch(pending)
		w.recordResult(err)
		return err
	})
}

// retryUntilAccepted publishes a message again that was not sent, or that no server accepts. It waits on the
// caller's time, not on a writer's: others' messages do not wait for it.
func (c *Conn) retryUntilAccepted(ctx context.Context, stream string, publish func() error) (err error) {
	for range wait.Tries(ctx, acceptTries) {
		if err := orDamaged(c.Noticed(), c.embedded, stream); err != nil {
			err = fmt.Errorf("publish to %s: %w", stream, err)
			c.metrics.failed(stream, opWrite, err)
			return err
		}
		if err = publish(); !unsent(err) {
			return err
		}
	}
	c.metrics.failed(stream, opWrite, err) // once, however often it was tried
	return err
}

// Durable checks an acknowledgement. If the store has failed meanwhile, it does not count: the error is
// ErrUncertain.
func (c *Conn) Durable(stream string) error {
	if err := orDamaged(c.Failure(), c.embedded, stream); err != nil {
		return fmt.Errorf("publish to %s: %w: it was acknowledged, and %w", stream, ErrUncertain, err)
	}
	return nil
}
