package natsconf

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf/leadership"
	"verifyd/natsconf/topology"
	"verifyd/natsconf/wait"
)

// errMarker is ErrNotFound for a key whose newest message marks it as deleted.
var errMarker = fmt.Errorf("%w: it was deleted", ErrNotFound)

// Reader reads from the leaders of streams, so that it sees every acknowledged write. That something is not
// there, or was deleted, it takes from a leader that most servers follow (package leadership). Its methods
// are safe for concurrent use.
type Reader struct {
	js       jetstream.JetStream
	metrics  *metrics
	embedded Server // if it is in this process
	leaders  *leadership.Leaders

	mu      sync.Mutex
	streams map[string]jetstream.Stream
}

func newReader(js jetstream.JetStream, embedded Server) *Reader {
	r := &Reader{
		js: js, metrics: newMetrics(), embedded: embedded, streams: map[string]jetstream.Stream{},
	}
	r.leaders = leadership.New(r.heard)
	return r
}

// Failure returns why the embedded store behind this connection must not be used, or nil.
func (r *Reader) Failure() error {
	if r.embedded == nil {
		return nil
	}
	return r.embedded.Failure()
}

// orDamaged returns the error, or else why a stream of an embedded store must not be used, or nil.
func orDamaged(err error, embedded Server, stream string) error {
	if err != nil || embedded == nil {
		return err
	}
	return embedded.Damaged(stream)
}

// Noticed is Failure without asking the filesystem, for a caller that asks the server next: the server's
// answer, or its absence, shows a failure that was not noticed yet.
func (r *Reader) Noticed() error {
	if r.embedded == nil {
		return nil
	}
	select {
	case <-r.embedded.Failed():
		return r.embedded.Failure()
	default:
		return nil
	}
}

// Abandoned returns a channel that is closed when the embedded store behind this connection has failed
// permanently; nil if there is none.
func (r *Reader) Abandoned() <-chan struct{} {
	if r.embedded == nil {
		return nil
	}
	return r.embedded.Abandoned()
}

// Last reads the newest message on a subject from the stream's leader, so that it sees every acknowledged
// write. Its errors are ErrNotFound and ErrUnavailable.
func (r *Reader) Last(ctx context.Context, stream, subject string) (m *jetstream.RawStreamMsg, err error) {
	err = r.ask(ctx, stream, func(ctx context.Context, s jetstream.Stream) (err error) {
		m, err = s.GetLastMsgForSubject(ctx, subject)
		if subject == ">" && errors.Is(err, jetstream.ErrMsgNotFound) {
			// For a whole stream the server uses the last sequence, and finds nothing if that message has
			// left the stream before others. No subject of ours is a single token.
			m, err = s.GetLastMsgForSubject(ctx, "*.>")
		}
		if err == nil && IsMarker(m.Header) {
			return errMarker
		}
		return err
	})
	if errors.Is(err, errMarker) {
		return m, nil
	}
	return m, err
}

// sequenceIn returns the sequence of the message that Last has read; 0 if there is none.
func sequenceIn(m *jetstream.RawStreamMsg, err error) (uint64, error) {
	switch {
	case errors.Is(err, ErrNotFound):
		return 0, nil
	case err != nil:
		return 0, err
	default:
		return m.Sequence, nil
	}
}

// askAgainAfter is how long a request that waits is without an answer until it asks again: it may have asked
// a server that has vanished, or before there was a leader. A read takes a millisecond.
const askAgainAfter = 2 * time.Second

// ask sends a request to the leader of a stream, and repeats it as long as ctx waits (package wait). Its
// errors are ErrNotFound and ErrUnavailable.
func (r *Reader) ask(ctx context.Context, stream string,
	question func(context.Context, jetstream.Stream) error) (err error) {
	patience := ackTimeout
	if wait.Is(ctx) {
		patience = askAgainAfter
	}
	for range wait.Tries(ctx, 1) {
		err = r.askOnce(ctx, stream, patience, question)
		if err == nil || errors.Is(err, ErrNotFound) || Lasting(err) || r.Noticed() != nil {
			break
		}
	}
	return r.answered(stream, err)
}

func (r *Reader) askOnce(ctx context.Context, stream string, patience time.Duration,
	question func(context.Context, jetstream.Stream) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s, err := r.stream(ctx, stream)
	if err != nil {
		return err
	}
	for {
		led := r.ledUntil(stream)
		switch err = question(ctx, s); {
		case err == nil:
			return nil
		case errors.Is(err, jetstream.ErrMsgNotFound):
			err = ErrNotFound
		case !errors.Is(err, ErrNotFound):
			return fmt.Errorf("read from %s: %w: %w", stream, ErrUnavailable, err)
		}
		if time.Now().Before(led) {
			return err
		}
		// The server that answered may have been replaced: what it does not have counts if it is asked again
		// while it is known to lead.
		if err = r.leaders.Await(ctx, stream); err != nil {
			return fmt.Errorf("read from %s: %w: %w", stream, ErrUnavailable, err)
		}
	}
}

// ledUntil returns until when the server that answers for a stream is known to lead it. One in this process
// always does.
func (r *Reader) ledUntil(stream string) time.Time {
	if r.embedded != nil {
		return time.Now().Add(ackTimeout)
	}
	return r.leaders.Until(stream)
}

// heard asks the leader of a stream when a majority has answered it last (leadership.Heard). Its errors are
// ErrUnavailable and leadership.ErrNoLeader.
func (r *Reader) heard(ctx context.Context, stream string) (ago time.Duration, alone bool, err error) {
	err = r.askOnce(ctx, stream, ackTimeout, func(ctx context.Context, s jetstream.Stream) error {
		info, err := s.Info(ctx)
		if err == nil {
			ago, alone, err = leadership.Heard(info)
		}
		return err
	})
	return ago, alone, err
}

// answered counts a failed read. If the embedded store has failed, or lost what the stream held, every read
// has: the server may have answered from memory with data that is not on disk, or without what is lost.
func (r *Reader) answered(stream string, err error) error {
	if failure := orDamaged(r.Failure(), r.embedded, stream); failure != nil {
		err = fmt.Errorf("read from %s: %w", stream, failure)
	}
	if err != nil {
		r.metrics.failed(stream, opRead, err)
	}
	return err
}

// stream returns a handle, asking the server only the first time.
func (r *Reader) stream(ctx context.Context, name string) (jetstream.Stream, error) {
	if err := r.Noticed(); err != nil {
		return nil, fmt.Errorf("look up stream %s: %w", name, err)
	}
	r.mu.Lock()
	s := r.streams[name]
	r.mu.Unlock()
	if s != nil {
		return s, nil
	}
	s, err := r.js.Stream(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("look up stream %s: %w: %w", name, ErrUnavailable, err)
	}
	r.mu.Lock()
	r.streams[name] = s
	r.mu.Unlock()
	return s, nil
}

// serverTime asks the leader of the outcomes for its clock, which gives them their timestamps. Its error is
// ErrUnavailable.
func (r *Reader) serverTime(ctx context.Context) (time.Time, error) {
	info, err := r.info(ctx, topology.StreamCompletions)
	if err != nil {
		return time.Time{}, err
	}
	return info.TimeStamp, nil
}

// info asks the leader of a stream for its state. Its error is ErrUnavailable.
func (r *Reader) info(ctx context.Context, stream string) (info *jetstream.StreamInfo, err error) {
	err = r.ask(ctx, stream, func(ctx context.Context, s jetstream.Stream) (err error) {
		info, err = s.Info(ctx)
		return err
	})
	return info, err
}

// Next reads the first message at or after a sequence whose subject matches, from the stream's leader. Its
// errors are ErrNotFound, past the last such message, and ErrUnavailable.
func (r *Reader) Next(ctx context.Context, stream, subject string, from uint64) (m *jetstream.RawStreamMsg,
	err error) {
	err = r.ask(ctx, stream, func(ctx context.Context, s jetstream.Stream) (err error) {
		m, err = s.GetMsg(ctx, from, jetstream.WithGetMsgSubject(subject))
		return err
	})
	return m, err
}

// Bounds returns the first and the last sequence that the stream's leader holds; last is below first while
// it holds none. Its error is ErrUnavailable.
func (r *Reader) Bounds(ctx context.Context, stream string) (first, last uint64, err error) {
	info, err := r.info(ctx, stream)
	if err != nil {
		return 0, 0, err
	}
	return info.State.FirstSeq, info.State.LastSeq, nil
}

// Purge removes the messages on a stream's subjects that match, if the stream allows that. Its errors are
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
func (r *Reader) KeptFor(ctx context.Context, stream string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	s, err := r.js.Stream(ctx, stream)
	if err != nil {
		return 0, fmt.Errorf("ask for the settings of %s: %w: %w", stream, ErrUnavailable, err)
	}
	return s.CachedInfo().Config.MaxAge, nil
}

// KeptUntil returns when a message leaves its stream by the stream's age, or at the end of the life that it
// came with; zero: never. Its error is ErrUnavailable.
func (r *Reader) KeptUntil(ctx context.Context, stream string, m *jetstream.RawStreamMsg) (time.Time, error) {
	if o, ok := OriginOf(m.Header); ok && m.Header.Get(jetstream.MsgTTLHeader) != "" {
		return o.Until, nil
	}
	age, err := r.KeptFor(ctx, stream)
	if err != nil || age == 0 {
		return time.Time{}, err
	}
	return m.Time.Add(age), nil
}

// ConsumerState is the position of a durable consumer.
type ConsumerState struct {
	Waiting   uint64 // messages that it has not delivered yet
	Given     uint64 // messages delivered and not acknowledged
	Floor     uint64 // every message up to this sequence of the stream is acknowledged
	Delivered uint64 // every message up to this sequence of the stream was delivered
}

// ConsumerState asks a consumer's leader. Its errors are ErrNotFound and ErrUnavailable.
func (r *Reader) ConsumerState(ctx context.Context, stream, consumer string) (_ ConsumerState, err error) {
	defer func() { err = r.answered(stream, err) }()
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	found, err := r.js.Consumer(ctx, stream, consumer)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		return ConsumerState{}, ErrNotFound
	case err != nil:
		return ConsumerState{}, fmt.Errorf("ask for consumer %s: %w: %w", consumer, ErrUnavailable, err)
	}
	return ConsumerStateOf(found.CachedInfo()), nil
}

// ConsumerStateOf returns the state that a consumer reported.
func ConsumerStateOf(i *jetstream.ConsumerInfo) ConsumerState {
	return ConsumerState{Waiting: i.NumPending, Given: uint64(i.NumAckPending), //nolint:gosec // a count
		Floor: i.AckFloor.Stream, Delivered: i.Delivered.Stream}
}

// SequenceAt returns the first sequence whose message was stored at or after an instant (StoredAt); one past
// the last if there is none. Its error is ErrUnavailable.
func (r *Reader) SequenceAt(ctx context.Context, stream string, at time.Time) (uint64, error) {
	low, last, err := r.Bounds(ctx, stream)
	if err != nil {
		return 0, err
	}
	high := last + 1
	for low < high { // messages before low are older, those from high on are not
		middle := low + (high-low)/2
		m, err := r.Next(ctx, stream, ">", middle)
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
