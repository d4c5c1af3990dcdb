package natsconf

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// rangeKept is how long the server keeps the consumer of a Range whose process died before it was deleted.
const rangeKept = 30 * time.Second

// Next reads the first message at or after a sequence whose subject matches, from the stream's leader. Its errors are ErrNotFound,
// past the last such message, and ErrUnavailable.
func (c *Conn) Next(ctx context.Context, stream, subject string, from uint64) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	s, err := c.stream(ctx, stream)
	if err != nil {
		return nil, err
	}
	m, err := s.GetMsg(ctx, from, jetstream.WithGetMsgSubject(subject))
	switch {
	case err == nil:
		return m, nil
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil, ErrNotFound
	default:
		return nil, fmt.Errorf("read from %s: %w: %w", stream, ErrUnavailable, err)
	}
}

// Bounds gives the first and the last sequence that the stream's leader holds; last is below first while it holds none. Its error
// is ErrUnavailable.
func (c *Conn) Bounds(ctx context.Context, stream string) (first, last uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	s, err := c.stream(ctx, stream)
	if err != nil {
		return 0, 0, err
	}
	info, err := s.Info(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("ask for the bounds of %s: %w: %w", stream, ErrUnavailable, err)
	}
	return info.State.FirstSeq, info.State.LastSeq, nil
}

// Range reads the messages with sequences from first to last, oldest first, by a consumer that is gone afterwards: thousands of
// single reads would stand in the way of the service's own. What has aged out meanwhile is left out. Its error is ErrUnavailable,
// also when ctx ends.
func (c *Conn) Range(ctx context.Context, stream string, first, last uint64) (msgs []jetstream.Msg, err error) {
	consumer, err := c.JS.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
		Description: "one reading of a range, for a person", DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: first,
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: rangeKept,
	})
	if err != nil {
		return nil, fmt.Errorf("begin to read %s: %w: %w", stream, ErrUnavailable, err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ackTimeout)
		defer cancel()
		_ = c.JS.DeleteConsumer(ctx, stream, consumer.CachedInfo().Name) // or the server does, after rangeKept
	}()
	for at := first; at <= last; {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("read from %s: %w: %w", stream, ErrUnavailable, ctx.Err())
		}
		some, next, err := fetchOnce(consumer, at, last)
		if err != nil {
			return nil, fmt.Errorf("read from %s: %w: %w", stream, ErrUnavailable, err)
		}
		if next == at {
			break // nothing more is there
		}
		msgs, at = append(msgs, some...), next
	}
	return msgs, nil
}

// fetchOnce reads what a consumer that stands at a sequence has up to last, and gives the sequence it stands at then.
func fetchOnce(consumer jetstream.Consumer, at, last uint64) (msgs []jetstream.Msg, next uint64, err error) {
	batch, err := consumer.FetchNoWait(int(last - at + 1)) //nolint:gosec // a page, see the callers
	if err != nil {
		return nil, at, err
	}
	for m := range batch.Messages() {
		meta, err := m.Metadata()
		if err != nil {
			return nil, at, err
		}
		if at = meta.Sequence.Stream + 1; at <= last+1 {
			msgs = append(msgs, m)
		}
	}
	return msgs, at, batch.Error()
}
