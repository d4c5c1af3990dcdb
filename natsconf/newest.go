package natsconf

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// Newest reads the newest message on each subject of a stream that matches one of these, in no particular order, by one consumer
// that is gone afterwards. It is for subjects whose messages fit into memory. Its error is ErrUnavailable.
func (c *Conn) Newest(ctx context.Context, stream string, subjects ...string) (msgs []jetstream.Msg, err error) {
	consumer, done, err := c.reading(ctx, stream, jetstream.ConsumerConfig{
		FilterSubjects: subjects, DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy,
	})
	if err != nil {
		return nil, err
	}
	defer done()
	for left := int(consumer.CachedInfo().NumPending); left > 0; { //nolint:gosec // fits into memory
		if ctx.Err() != nil {
			return nil, fmt.Errorf("read from %s: %w: %w", stream, ErrUnavailable, ctx.Err())
		}
		batch, err := consumer.FetchNoWait(left)
		if err != nil {
			return nil, fmt.Errorf("read from %s: %w: %w", stream, ErrUnavailable, err)
		}
		before := left
		for m := range batch.Messages() {
			msgs = append(msgs, m)
			left--
		}
		if err := batch.Error(); err != nil {
			return nil, fmt.Errorf("read from %s: %w: %w", stream, ErrUnavailable, err)
		}
		if left == before {
			break // what was counted has gone meanwhile
		}
	}
	return msgs, nil
}
