package natsconf_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf/natstest"
	"verifyd/natsconf/natstest/virtual"
	"verifyd/natsconf/topology"
)

// A consumer is deleted, and what the server says of it does not arrive: pulling ends all the same, and its
// repeat creates the consumer and gets what is there.
func TestPullFromADeletedConsumer(t *testing.T) {
	t.Parallel()
	virtual.Bubble(t, pullFromADeletedConsumer)
}

func pullFromADeletedConsumer(t *testing.T) {
	store := virtual.NewBroker(t)
	direct := store.Connect(t, nil)
	natstest.Ensure(t, direct)
	var drop atomic.Bool
	var dropped atomic.Int64
	through := store.Connect(t, func() virtual.Pass {
		return func(toServer bool, _ []byte) bool {
			if toServer || !drop.Load() {
				return true
			}
			dropped.Add(1)
			return false
		}
	})
	natstest.Publish(t, direct, "completion.a", nil)
	from := topology.DispatcherConsumers()[0]
	got := make(chan string, 10)
	pull := func(ctx context.Context) chan error {
		ended := make(chan error, 1)
		go func() {
			ended <- through.Pull(ctx, from, 10, func(m jetstream.Msg) { got <- m.Subject(); _ = m.Ack() })
		}()
		return ended
	}
	ended := pull(t.Context())
	if s := natstest.Receive(t, "the message comes", got); s != "completion.a" {
		t.Errorf("got %s", s)
	}
	drop.Store(true)
	if err := direct.JS.DeleteConsumer(t.Context(), from.Stream, from.Config.Durable); err != nil {
		t.Fatal(err)
	}
	natstest.Await(t, "what the server said is lost", func() bool { return dropped.Load() > 0 })
	drop.Store(false)
	select {
	case err := <-ended:
		if err == nil || errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(natstest.TestTimeout):
		t.Fatal("it waits for ever")
	}
	ctx, stop := context.WithCancel(t.Context())
	ended = pull(ctx)
	if s := natstest.Receive(t, "the message comes", got); s != "completion.a" {
		t.Errorf("got %s", s)
	}
	stop()
	if err := natstest.Receive(t, "a stopped pull ends", ended); !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}
