package natsconf

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// readingKept is how long the server keeps the consumer of a reading whose process died before it was deleted.
const readingKept = 30 * time.Second

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

// ConsumerState is how far a durable consumer has come.
type ConsumerState struct {
	Waiting uint64 // messages that it has not given out yet
	Given   uint64 // messages given out and not acknowledged
	Floor   uint64 // every message up to this sequence of the stream is acknowledged
}

// ConsumerState asks a consumer's leader. Its errors are ErrNotFound and ErrUnavailable.
func (c *Conn) ConsumerState(ctx context.Context, stream, consumer string) (ConsumerState, error) {
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	found, err := c.JS.Consumer(ctx, stream, consumer)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		return ConsumerState{}, ErrNotFound
	case err != nil:
		return ConsumerState{}, fmt.Errorf("ask for consumer %s: %w: %w", consumer, ErrUnavailable, err)
	}
	i := found.CachedInfo()
	return ConsumerState{Waiting: i.NumPending, Given: uint64(i.NumAckPending), Floor: i.AckFloor.Stream}, nil //nolint:gosec // a count
}

// Head reads the first messages on a stream's subjects that match, most or less, and counts all of them. Its error is ErrUnavailable,
// also when ctx ends.
func (c *Conn) Head(ctx context.Context, stream, subject string, most int) (msgs []jetstream.Msg, all uint64, err error) {
	consumer, done, err := c.reading(ctx, stream, jetstream.ConsumerConfig{FilterSubject: subject, DeliverPolicy: jetstream.DeliverAllPolicy})
	if err != nil {
		return nil, 0, err
	}
	defer done()
	if all = consumer.CachedInfo().NumPending; all == 0 {
		return nil, 0, nil
	}
	batch, err := consumer.FetchNoWait(most)
	if err == nil {
		for m := range batch.Messages() {
			msgs = append(msgs, m)
		}
		err = batch.Error()
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read from %s: %w: %w", stream, ErrUnavailable, err)
	}
	return msgs, all, nil
}

// reading makes a consumer for one reading; done takes it away.
func (c *Conn) reading(ctx context.Context, stream string, config jetstream.ConsumerConfig) (_ jetstream.Consumer, done func(), err error) {
	config.Description, config.AckPolicy = "one reading", jetstream.AckNonePolicy
	config.MemoryStorage, config.Replicas, config.InactiveThreshold = true, 1, readingKept
	try, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	consumer, err := c.JS.CreateConsumer(try, stream, config)
	if err != nil {
		return nil, nil, fmt.Errorf("begin to read %s: %w: %w", stream, ErrUnavailable, err)
	}
	return consumer, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ackTimeout)
		defer cancel()
		_ = c.JS.DeleteConsumer(ctx, stream, consumer.CachedInfo().Name) // or the server does, after readingKept
	}, nil
}

// Range reads the messages with sequences from first to last whose subject matches, oldest first, by a consumer that is gone
// afterwards: thousands of single reads would stand in the way of the service's own. What has aged out meanwhile is left out. Its
// error is ErrUnavailable, also when ctx ends.
func (c *Conn) Range(ctx context.Context, stream, subject string, first, last uint64) (msgs []jetstream.Msg, err error) {
	return c.RangeOf(ctx, stream, subject, first, last, math.MaxInt32)
}

// RangeOf is Range for most messages; where there are more it gives none of them, and ErrTooMany.
func (c *Conn) RangeOf(ctx context.Context, stream, subject string, first, last uint64, most int) (msgs []jetstream.Msg, err error) {
	consumer, done, err := c.reading(ctx, stream, jetstream.ConsumerConfig{
		FilterSubject: subject, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: first,
	})
	if err != nil {
		return nil, err
	}
	defer done()
	left := consumer.CachedInfo().NumPending // what comes later is behind last anyway
	for at := first; at <= last && left > 0; {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("read from %s: %w: %w", stream, ErrUnavailable, ctx.Err())
		}
		some, next, err := fetchOnce(consumer, at, last, min(left, rangePage, uint64(most-len(msgs))+1)) //nolint:gosec // never below 1
		if err != nil {
			return nil, fmt.Errorf("read from %s: %w: %w", stream, ErrUnavailable, err)
		}
		if next == at {
			break // nothing more is there
		}
		msgs, at, left = append(msgs, some...), next, left-min(left, uint64(len(some)))
		if len(msgs) > most {
			return nil, ErrTooMany
		}
	}
	return msgs, nil
}

// rangePage is how many messages a reading asks for at once: some hundred KiB.
const rangePage = 1024

// fetchOnce reads what a consumer that stands at a sequence has up to last, and gives the sequence it stands at then.
func fetchOnce(consumer jetstream.Consumer, at, last, most uint64) (msgs []jetstream.Msg, next uint64, err error) {
	batch, err := consumer.FetchNoWait(int(min(most, last-at+1))) //nolint:gosec // a page
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

// SequenceAt gives the first sequence whose message was stored at or after an instant; one past the last where there is none. Its
// error is ErrUnavailable.
func (c *Conn) SequenceAt(ctx context.Context, stream string, at time.Time) (uint64, error) {
	low, last, err := c.Bounds(ctx, stream)
	if err != nil {
		return 0, err
	}
	high := last + 1
	for low < high { // what is before low is older, what is at high or after it is not
		middle := low + (high-low)/2
		m, err := c.Next(ctx, stream, ">", middle)
		switch {
		case errors.Is(err, ErrNotFound):
			high = middle
		case err != nil:
			return 0, err
		case m.Time.Before(at):
			low = m.Sequence + 1
		default:
			high = middle
		}
	}
	return high, nil
}
