package natsconf

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// Acknowledge goes through everything that a durable consumer has still to deliver, acknowledges what ended
// says is done with, and returns the rest to it at once. Nobody else may use the consumer meanwhile. Its
// error is ErrUnavailable; a repeat is harmless.
func (c *Conn) Acknowledge(ctx context.Context, asset ConsumerAsset, ended func(jetstream.Msg) bool) error {
	if err := EnsureConsumer(ctx, c.JS, asset); err != nil {
		return err
	}
	consumer, err := c.JS.Consumer(ctx, asset.Stream, asset.Config.Durable)
	if err != nil {
		return fmt.Errorf("look up consumer %s: %w: %w", asset.Config.Durable, ErrUnavailable, err)
	}
	g := delivering{consumer: consumer, ended: ended}
	for left := consumer.CachedInfo().NumPending; left > 0; {
		if ctx.Err() != nil {
			return fmt.Errorf("acknowledge: %w: %w", ErrUnavailable, ctx.Err())
		}
		n, err := g.page(ctx)
		if err != nil {
			return fmt.Errorf("acknowledge: %w: %w", ErrUnavailable, err)
		}
		if n == 0 {
			break // what was counted has aged out
		}
		left -= min(left, n)
	}
	for _, m := range g.rest {
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

// delivering is one pass over what a consumer delivers.
type delivering struct {
	consumer jetstream.Consumer
	ended    func(jetstream.Msg) bool
	rest     []jetstream.Msg // what has not ended
}

// page takes the next messages and says how many there were.
func (g *delivering) page(ctx context.Context) (n uint64, err error) {
	msgs, err := fetch(ctx, g.consumer, readingPage)
	if err != nil {
		return 0, err
	}
	for _, m := range msgs {
		n++
		if !g.ended(m) {
			g.rest = append(g.rest, m)
		} else if err := m.Ack(); err != nil {
			return n, err
		}
	}
	return n, nil
}
