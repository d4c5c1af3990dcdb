package natsconf

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"
)

// Tail reads what is stored in a stream from now on, without the messages' data, until done is called. What comes after Tail has
// returned is not missed while the connection stands; after it has come back (Back), and after an error that the consumer tells,
// the caller begins anew. Its error is ErrUnavailable.
func (c *Conn) Tail(ctx context.Context, stream string) (_ jetstream.Consumer, done func(), err error) {
	return c.reading(ctx, stream, jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverNewPolicy, HeadersOnly: true})
}
