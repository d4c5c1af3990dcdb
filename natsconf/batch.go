package natsconf

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// PublishOne stores one message of a stream that is seldom written, and so has no Writer. A batch of one
// would be staged in files first. Its errors are those of PublishBatch.
func (c *Conn) PublishOne(ctx context.Context, stream string, m *nats.Msg) error {
	return c.retryUntilAccepted(ctx, stream, func() error {
		_, err := c.JS.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0))
		if err == nil {
			return nil
		}
		return fmt.Errorf("publish to %s: %w", stream, Kind(err))
	})
}

// PublishBatch stores all of the messages or none, as one atomic batch of a stream that takes them. It is
// for the few places where two entries must change together; streams that are written much have a Writer.
// Its errors are ErrConflict where one of the messages expects another last message of its subject,
// ErrUncertain, ErrUnavailable and ErrStoreFull.
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
