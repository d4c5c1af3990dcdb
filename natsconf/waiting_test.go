package natsconf_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/natstest/virtual"
	"verifyd/natsconf/wait"
)

// A waiting caller is answered once the stream has a leader, however many tries failed, and its waiting is no
// failure; a caller that leaves is released at once.
func TestWaitingOutlastsWhatHurryDoesNot(t *testing.T) {
	t.Parallel()
	conn := natstest.ConnectTo(t, natstest.Bare(t, t.TempDir()))
	w := natstest.Writer(t, conn, "ONE")
	ctx, cancel := wait.For(t.Context(), natstest.TestTimeout)
	defer cancel()
	gone, leave := wait.For(t.Context(), natstest.TestTimeout)
	results, left := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := w.Publish(ctx, &nats.Msg{Subject: "one.1"})
		results <- err
	}()
	go func() {
		_, err := w.Publish(gone, &nats.Msg{Subject: "one.2"})
		left <- err
	}()
	// after the two seconds for which others retry it
	if _, err := w.Publish(t.Context(), &nats.Msg{Subject: "one.3"}); !errors.Is(err,
		natsconf.ErrUnavailable) {
		t.Errorf("without waiting: %v", err)
	}
	if n := failures(t, conn); n != 1 {
		t.Errorf("%v failures, want that of the one that was given up", n)
	}
	leave()
	if err := natstest.Receive(t, "who leaves is released", left); err == nil {
		t.Error("who has left is told that it is stored")
	}
	if _, err := conn.JS.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "ONE", Subjects: []string{"one.>"},
	}); err != nil {
		t.Fatal(err)
	}
	if err := natstest.Receive(t, "who waits is answered", results); err != nil {
		t.Errorf("who waits: %v", err)
	}
}

// A missing message is not waited for.
func TestWaitingReads(t *testing.T) {
	t.Parallel()
	address := natstest.Bare(t, t.TempDir())
	direct := natstest.ConnectTo(t, address)
	if _, err := direct.JS.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "ONE", Subjects: []string{"one.>"},
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := wait.For(t.Context(), 60*natstest.TestTimeout) // so that waiting is seen
	defer cancel()
	for what, read := range map[string]func(context.Context) error{
		"a message that is not there": func(ctx context.Context) error {
			_, err := direct.Last(ctx, "ONE", "one.1")
			return err
		},
		"a stream that is not there": func(ctx context.Context) error {
			_, err := direct.Last(ctx, "TWO", "two.1")
			return err
		},
	} {
		result := make(chan error, 1)
		go func() { result <- read(ctx) }()
		if err := natstest.Receive(t, what+" is not waited for", result); err == nil {
			t.Errorf("%s is read", what)
		}
	}
}

// A reading over a connection that is silent, and comes back seconds later, is repeated.
func TestWaitingReadingsOutlastSilence(t *testing.T) {
	t.Parallel()
	virtual.Bubble(t, waitingReadingsOutlastSilence)
}

func waitingReadingsOutlastSilence(t *testing.T) {
	var silent atomic.Bool
	conn := virtual.NewBroker(t).Connect(t, func() virtual.Pass {
		return func(bool, []byte) bool { return !silent.Load() }
	})
	if _, err := conn.JS.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "ONE", Subjects: []string{"one.>"},
	}); err != nil {
		t.Fatal(err)
	}
	silent.Store(true)
	ctx, cancel := wait.For(t.Context(), natstest.TestTimeout)
	defer cancel()
	result := make(chan error, 1)
	go func() {
		_, _, err := conn.Head(ctx, "ONE", "one.>", 1)
		result <- err
	}()
	natstest.Await(t, "the silence is noticed", func() bool { return !conn.Connected() })
	silent.Store(false)
	if err := natstest.Receive(t, "the reading is answered", result); err != nil {
		t.Error(err)
	}
}
