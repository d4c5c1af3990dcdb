package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"verifyd/cmd/verifyd-bench/bench/child"
	"verifyd/cmd/verifyd-bench/bench/load"
	"verifyd/natsconf"
	"verifyd/natsconf/topology"
)

// external is the server of --nats-url. Others may use it.
type external struct{ o Options }

// ErrForeignStore is returned if the external server holds a store that the bench did not make.
var ErrForeignStore = errors.New(
	"the server of --nats-url holds a store of verifyd already, which the bench would load and then " +
		"remove; give it an account or a server of its own")

// checkEmpty refuses a server that holds a store.
func (e external) checkEmpty(ctx context.Context) error {
	return e.with(ctx, func(js jetstream.JetStream, name string) error {
		_, err := js.Stream(ctx, name)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
			return nil
		case err != nil:
			return fmt.Errorf("look at the server of --nats-url: %w", err)
		default:
			return fmt.Errorf("%w (stream %s)", ErrForeignStore, name)
		}
	})
}

// wipe removes the store that the bench made.
func (e external) wipe(ctx context.Context) error {
	return e.with(ctx, func(js jetstream.JetStream, name string) error {
		if err := js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("remove %s from the server of --nats-url: %w", name, err)
		}
		return nil
	})
}

func (e external) with(ctx context.Context, do func(js jetstream.JetStream, name string) error) error {
	if e.o.NATSURL == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, load.AnswerWithin)
	defer cancel()
	conn, err := natsconf.Connect(ctx, natsconf.ConnectOptions{
		URL: e.o.NATSURL, CredsFile: e.o.NATSCreds, Name: "verifyd bench", Log: zerolog.Nop(),
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, stream := range topology.New(topology.Options{}).Streams {
		if err := do(conn.JS, stream.Name); err != nil {
			return err
		}
	}
	return do(conn.JS, child.PublishStream)
}
