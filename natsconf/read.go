package natsconf

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Next reads the first message at or after a sequence whose subject matches, from the stream's leader. Its
// errors are ErrNotFound, past the last such message, and ErrUnavailable.
func (c *Conn) Next(ctx context.Context, stream, subject string, from uint64) (_ *jetstream.RawStreamMsg,
	err error) {
	defer func() { err = c.answered(stream, err) }()
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

// Bounds returns the first and the last sequence that the stream's leader holds; last is below first while
// it holds none. Its error is ErrUnavailable.
func (c *Conn) Bounds(ctx context.Context, stream string) (first, last uint64, err error) {
	defer func() { err = c.answered(stream, err) }()
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

// Purge takes away what is on a stream's subjects that match, where the stream allows that. Its errors are
// those of the server's API.
func (c *Conn) Purge(ctx context.Context, stream, subject string) error {
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	s, err := c.stream(ctx, stream)
	if err != nil {
		return err
	}
	if err := s.Purge(ctx, jetstream.WithPurgeSubject(subject)); err != nil {
		return fmt.Errorf("purge %s: %w", stream, err)
	}
	return nil
}

// KeptFor returns how long a stream keeps its messages. Its error is ErrUnavailable.
func (c *Conn) KeptFor(ctx context.Context, stream string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	s, err := c.JS.Stream(ctx, stream)
	if err != nil {
		return 0, fmt.Errorf("ask for the settings of %s: %w: %w", stream, ErrUnavailable, err)
	}
	return s.CachedInfo().Config.MaxAge, nil
}

// KeptUntil returns when a message leaves its stream by the stream's age, or by the end of the life that it
// came with; zero: never. Its error is ErrUnavailable.
func (c *Conn) KeptUntil(ctx context.Context, stream string, m *jetstream.RawStreamMsg) (time.Time, error) {
	if o, ok := OriginOf(m.Header); ok {
		return o.Until, nil
	}
	age, err := c.KeptFor(ctx, stream)
	if err != nil || age == 0 {
		return time.Time{}, err
	}
	return m.Time.Add(age), nil
}

// ConsumerState is how far a durable consumer has come.
type ConsumerState struct {
	Waiting uint64 // messages that it has not given out yet
	Given   uint64 // messages given out and not acknowledged
	Floor   uint64 // every message up to this sequence of the stream is acknowledged
}

// ConsumerState asks a consumer's leader. Its errors are ErrNotFound and ErrUnavailable.
func (c *Conn) ConsumerState(ctx context.Context, stream, consumer string) (_ ConsumerState, err error) {
	defer func() { err = c.answered(stream, err) }()
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	found, err := c.JS.Consumer(ctx, stream, consumer)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		return ConsumerState{}, ErrNotFound
	case err != nil:
		return ConsumerState{}, fmt.Errorf("ask for consumer %s: %w: %w", consumer, ErrUnavailable, err)
	}
	return stateOf(found.CachedInfo()), nil
}

func stateOf(i *jetstream.ConsumerInfo) ConsumerState {
	return ConsumerState{Waiting: i.NumPending, Given: uint64(i.NumAckPending), //nolint:gosec // a count
		Floor: i.AckFloor.Stream}
}

// SequenceAt returns the first sequence whose message was stored at or after an instant (StoredAt); one past
// the last where there is none. Its error is ErrUnavailable.
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
		case StoredAt(m.Header, m.Time).Before(at):
			low = m.Sequence + 1
		default:
			high = middle
		}
	}
	return high, nil
}
