package notice

import (
	"context"
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
	all := topology.NoticeConsumers()
	i := slices.IndexFunc(all, func(c topology.Consumer) bool { return c.Config.Durable == name })
	return c.Pull(ctx, all[i], ahead, take)
}
