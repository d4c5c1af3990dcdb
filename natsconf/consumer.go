package natsconf

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf/topology"
	"verifyd/natsconf/wait"
)

const (
	// pullHeartbeat is how often the server shows that a pull is pending. After two that did not come the
	// consumer is looked up.
	pullHeartbeat = 5 * time.Second
	// readingKept is how long the server keeps the consumer of a reading whose process died before it was
	// deleted.
	readingKept = 30 * time.Second
	// readingPage is how many messages a reading asks for at once: some hundred KiB. readingFew is how many
	// it asks for that its server had not heard of at first.
	readingPage = 1024
	readingFew  = 16
	// heardWithin is how long a new consumer is asked again if no server seems to listen. On a cluster it may
	// live on another server, and this server learns that it exists a moment before it learns how to reach
	// it.
	heardWithin = time.Second
	// readingPause is the pause between two requests that wait for another server.
	readingPause = 5 * time.Millisecond
)

// EnsureConsumer creates or updates a durable consumer. It is harmless to repeat.
func EnsureConsumer(ctx context.Context, js jetstream.JetStream, c topology.Consumer) error {
	if _, err := js.CreateOrUpdateConsumer(ctx, c.Stream, c.Config); err != nil {
		return fmt.Errorf("ensure consumer %s: %w", c.Config.Durable, err)
	}
	return nil
}

// Pull passes the messages of a durable consumer to take until ctx ends, and requests ahead of them at once.
// What was pulled by then and not passed on goes back to the server. A consumer that somebody deleted is
// created; if it is deleted meanwhile, Pull returns an error, and its caller pulls again.
func (c *Conn) Pull(ctx context.Context, from topology.Consumer, ahead int, take func(jetstream.Msg)) error {
	consumer, err := openConsumer(ctx, c.JS, from)
	if err != nil {
		return err
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(ahead),
		jetstream.PullHeartbeat(pullHeartbeat))
	if err != nil {
		return fmt.Errorf("pull from %s: %w", from.Config.Durable, err)
	}
	stop := context.AfterFunc(ctx, messages.Drain)
	defer stop()
	defer messages.Stop()
	for {
		m, err := messages.Next()
		switch {
		case err == nil && ctx.Err() != nil:
			_ = m.Nak()
		case err == nil:
			take(m)
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, jetstream.ErrNoHeartbeat) && !deleted(ctx, c.JS, from):
			// the iterator goes on by itself once the server answers again
		default:
			return fmt.Errorf("pull from %s: %w", from.Config.Durable, err)
		}
	}
}

// deleted reports whether a consumer does not exist any more. The server tells this once, to the pulls that
// it has then: it is missed while the connection is down, and by a pull that begins just then.
func deleted(ctx context.Context, js jetstream.JetStream, c topology.Consumer) bool {
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	_, err := js.Consumer(ctx, c.Stream, c.Config.Durable)
	return errors.Is(err, jetstream.ErrConsumerNotFound)
}

// openConsumer looks a consumer up, and creates it if somebody has deleted it.
func openConsumer(ctx context.Context, js jetstream.JetStream, c topology.Consumer) (jetstream.Consumer,
	error) {
	consumer, err := js.Consumer(ctx, c.Stream, c.Config.Durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		if err := EnsureConsumer(ctx, js, c); err != nil {
			return nil, err
		}
		consumer, err = js.Consumer(ctx, c.Stream, c.Config.Durable)
	}
	if err != nil {
		return nil, fmt.Errorf("look up consumer %s: %w", c.Config.Durable, err)
	}
	return consumer, nil
}

// Acknowledge goes through everything that a durable consumer still has to deliver, acknowledges the messages
// that ended reports as done, and returns the rest to it at once. Nothing else may use the consumer
// meanwhile. Its error is ErrUnavailable; a repeat is harmless.
func (c *Conn) Acknowledge(ctx context.Context, asset topology.Consumer,
	ended func(jetstream.Msg) bool) error {
	if err := EnsureConsumer(ctx, c.JS, asset); err != nil {
		return err
	}
	// The answer to a repeated creation may hold figures of when the consumer was loaded.
	consumer, err := c.JS.Consumer(ctx, asset.Stream, asset.Config.Durable)
	if err != nil {
		return fmt.Errorf("look up consumer %s: %w: %w", asset.Config.Durable, ErrUnavailable, err)
	}
	rest, err := acknowledge(ctx, consumer, ended)
	if err != nil {
		return fmt.Errorf("acknowledge: %w: %w", ErrUnavailable, err)
	}
	for _, m := range rest {
		if err := m.Nak(); err != nil {
			return fmt.Errorf("return to the consumer: %w: %w", ErrUnavailable, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	if err := c.NC.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("acknowledge: %w: %w", ErrUnavailable, err)
	}
	return nil
}

// acknowledge takes everything that a consumer has to deliver, and returns what has not ended.
func acknowledge(ctx context.Context, consumer jetstream.Consumer,
	ended func(jetstream.Msg) bool) (rest []jetstream.Msg, err error) {
	for left := consumer.CachedInfo().NumPending; left > 0; {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		msgs, err := fetch(ctx, consumer, readingPage)
		if err != nil {
			return nil, err
		}
		if len(msgs) == 0 {
			break // the counted messages have aged out
		}
		for _, m := range msgs {
			if !ended(m) {
				rest = append(rest, m)
			} else if err := m.Ack(); err != nil {
				return nil, err
			}
		}
		left -= min(left, uint64(len(msgs)))
	}
	return rest, nil
}

// consumer creates a consumer for one reading; done deletes it. It is tried again as long as ctx waits
// (package wait): the server that places consumers may have to be elected.
func (r *Reader) consumer(ctx context.Context, stream string,
	config jetstream.ConsumerConfig) (_ jetstream.Consumer, done func(), err error) {
	config.Description, config.AckPolicy = "one reading", jetstream.AckNonePolicy
	config.MemoryStorage, config.Replicas, config.InactiveThreshold = true, 1, readingKept
	var consumer jetstream.Consumer
	for range wait.Tries(ctx, 1) {
		try, cancel := context.WithTimeout(ctx, ackTimeout)
		consumer, err = r.js.CreateConsumer(try, stream, config)
		cancel()
		if err == nil || Lasting(err) || r.Noticed() != nil {
			break
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("begin to read %s: %w: %w", stream, ErrUnavailable, err)
	}
	return consumer, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ackTimeout)
		defer cancel()
		// or the server does, after readingKept
		_ = r.js.DeleteConsumer(ctx, stream, consumer.CachedInfo().Name)
	}, nil
}

// fetch takes the messages that a consumer has, at most limit.
func fetch(ctx context.Context, consumer jetstream.Consumer, limit int) ([]jetstream.Msg, error) {
	for late := time.Now().Add(heardWithin); ; {
		batch, err := consumer.FetchNoWait(limit)
		if err != nil {
			return nil, err
		}
		var msgs []jetstream.Msg
		for m := range batch.Messages() {
			msgs = append(msgs, m)
		}
		err = batch.Error()
		if !errors.Is(err, nats.ErrNoResponders) || time.Now().After(late) {
			return msgs, err
		}
		if err := wait.Pause(ctx, readingPause); err != nil {
			return nil, err
		}
	}
}
