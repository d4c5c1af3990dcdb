package natsconf_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
)

// While nobody leads a stream, no server takes what is published to it: the message is offered again, and stored once somebody does.
func TestMessagesAreOfferedUntilTaken(t *testing.T) {
	t.Parallel()
	conn, vain := aloneConn(t)
	single, batch := natstest.Writer(t, conn, "ONE"), func(n int) error {
		return conn.PublishBatch(t.Context(), "ONE", &nats.Msg{Subject: fmt.Sprintf("one.b%d.1", n)}, &nats.Msg{Subject: fmt.Sprintf("one.b%d.2", n)})
	}
	fates := make(chan error)
	const each = 3
	for n := range each {
		go func() {
			_, err := single.Publish(t.Context(), &nats.Msg{Subject: fmt.Sprintf("one.s%d", n)})
			fates <- err
		}()
		go func() { fates <- batch(n) }()
	}
	natstest.Await(t, "each was offered in vain", func() bool { return vain() >= 2*each })
	config := jetstream.StreamConfig{Name: "ONE", Subjects: []string{"one.>"}, AllowAtomicPublish: true}
	s, err := conn.JS.CreateStream(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 * each {
		if err := <-fates; err != nil {
			t.Error(err)
		}
	}
	if info, err := s.Info(t.Context()); err != nil || info.State.Msgs != 3*each || info.State.NumSubjects != 3*each {
		t.Errorf("%d messages on %d subjects, want %d, each once (%v)", info.State.Msgs, info.State.NumSubjects, 3*each, err)
	}
}

// Where nobody comes to take it the caller is told so, and that nothing is stored, also when its time ends first.
func TestMessagesThatNobodyTakesAreNotStored(t *testing.T) {
	t.Parallel()
	conn, vain := aloneConn(t)
	w := natstest.Writer(t, conn, "ONE")
	if _, err := w.Publish(t.Context(), &nats.Msg{Subject: "one.1"}); !errors.Is(err, natsconf.ErrUnavailable) || vain() < 2 {
		t.Errorf("offered %v times: %v", vain(), err)
	}
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	before, fate := vain(), make(chan error)
	go func() {
		fate <- conn.PublishBatch(ctx, "ONE", &nats.Msg{Subject: "one.1"}, &nats.Msg{Subject: "one.2"})
	}()
	natstest.Await(t, "it is offered", func() bool { return vain() > before })
	leave()
	if err := <-fate; !errors.Is(err, natsconf.ErrUnavailable) || errors.Is(err, natsconf.ErrUncertain) {
		t.Errorf("after the caller has left: %v", err)
	}
}

// aloneConn connects to a server that has no stream; vain gives how often what was published was not taken.
func aloneConn(t *testing.T) (conn *natsconf.Conn, vain func() float64) {
	t.Helper()
	conn = natstest.ConnectTo(t, natstest.Bare(t, t.TempDir()))
	registry := prometheus.NewRegistry()
	conn.Measure(registry)
	return conn, func() float64 {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "verifyd_jetstream_errors_total" {
				return f.GetMetric()[0].GetCounter().GetValue()
			}
		}
		return 0
	}
}
