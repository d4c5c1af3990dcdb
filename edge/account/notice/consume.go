package notice

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/topology"
)

// ahead is how many messages are requested ahead: few, since each waits its turn within the consumer's
// AckWait.
const ahead = 16

// consume takes messages from one of the consumers of notices until ctx ends. Messages that were pulled by
// then go back at once.
func consume(ctx context.Context, c *natsconf.Conn, name string, take func(jetstream.Msg)) error {
	consumer, err := open(ctx, c.JS, name)
	if err != nil {
		return err
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(ahead))
	if err != nil {
		return fmt.Errorf("pull from %s: %w", name, err)
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
		case errors.Is(err, jetstream.ErrNoHeartbeat):
			// the iterator goes on by itself once the server answers again
		default:
			return fmt.Errorf("pull from %s: %w", name, err)
		}
	}
}

// open looks a consumer up, and creates it if somebody has deleted it.
func open(ctx context.Context, js jetstream.JetStream, name string) (jetstream.Consumer, error) {
	all := topology.NoticeConsumers()
	asset := all[slices.IndexFunc(all, func(c topology.Consumer) bool { return c.Config.Durable == name })]
	consumer, err := js.Consumer(ctx, asset.Stream, name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		if err := natsconf.EnsureConsumer(ctx, js, asset); err != nil {
			return nil, err
		}
		consumer, err = js.Consumer(ctx, asset.Stream, name)
	}
	if err != nil {
		return nil, fmt.Errorf("look up consumer %s: %w", name, err)
	}
	return consumer, nil
}
