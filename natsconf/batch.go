package natsconf

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
)

// PublishBatch stores all of the messages or none, as one atomic batch of a stream that takes them. It is for the few places where two
// entries must change together; streams that are written much have a Writer. Its errors are ErrConflict where one of the messages
// expects another last message of its subject, ErrUncertain, ErrUnavailable and ErrStoreFull.
func (c *Conn) PublishBatch(ctx context.Context, stream string, msgs ...*nats.Msg) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("publish to %s: %w: %w", stream, ErrUnavailable, err)
	}
	letters := make([]*letter, len(msgs))
	for i, m := range msgs {
		letters[i] = &letter{msg: m}
	}
	w := Writer{conn: c, stream: stream} // never served: the batch is whole already
	return c.untilTaken(ctx, stream, func() error {
		err := w.writeBatch(letters)
		w.hear(err)
		return err
	})
}
