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
	"verifyd/natsconf/natstest/virtual"
	"verifyd/natsconf/wait"
)

// While a stream has no leader, no server accepts what is published to it: the message is published again,
// and stored once there is a leader.
func TestMessagesAreOfferedUntilTaken(t *testing.T) {
	t.Parallel()
	conn := natstest.ConnectTo(t, natstest.Bare(t, t.TempDir()))
	w := natstest.Writer(t, conn, "ONE")
	const each = 3
	patient := natstest.Patient(t) // making a stream may take a disk longer than a caller that does not wait
	fates, before := make(chan error, 2*each), conn.NC.Stats().OutMsgs
	for n := range each {
		go func() {
			_, err := w.Publish(patient, &nats.Msg{Subject: fmt.Sprintf("one.s%d", n)})
			fates <- err
		}()
		go func() {
			fates <- conn.PublishBatch(patient, "ONE", &nats.Msg{Subject: fmt.Sprintf("one.b%d.1", n)},
				&nats.Msg{Subject: fmt.Sprintf("one.b%d.2", n)})
		}()
	}
	const all = 3 * each
	natstest.Await(t, "they were offered, in vain", func() bool {
		return conn.NC.Stats().OutMsgs >= before+2*all
	})
	s, err := conn.JS.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "ONE", Subjects: []string{"one.>"}, AllowAtomicPublish: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 * each {
		if err := natstest.Receive(t, "a write ends", fates); err != nil {
			t.Error(err)
		}
	}
	info, err := s.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.State.Msgs != all || info.State.NumSubjects != all || failures(t, conn) != 0 {
		t.Errorf("%d messages on %d subjects and %v failures, want %d, each once, and none", info.State.Msgs,
			info.State.NumSubjects, failures(t, conn), all)
	}
}

// If there is no leader in time the caller gets an error that nothing is stored, also when its time ends
// first.
func TestMessagesWithoutALeaderAreNotStored(t *testing.T) {
	t.Parallel()
	conn := natstest.ConnectTo(t, natstest.Bare(t, t.TempDir()))
	w := natstest.Writer(t, conn, "ONE")
	before := conn.NC.Stats().OutMsgs
	if _, err := w.Publish(t.Context(), &nats.Msg{Subject: "one.1"}); !errors.Is(err,
		natsconf.ErrUnavailable) || conn.NC.Stats().OutMsgs < before+2 {
		t.Errorf("offered %d times: %v", conn.NC.Stats().OutMsgs-before, err)
	}
	if n := failures(t, conn); n != 1 {
		t.Errorf("one message that was not stored counts as %v", n)
	}
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	before = conn.NC.Stats().OutMsgs
	result := make(chan error, 1)
	go func() {
		result <- conn.PublishBatch(ctx, "ONE", &nats.Msg{Subject: "one.1"}, &nats.Msg{Subject: "one.2"})
	}()
	natstest.Await(t, "it is offered", func() bool { return conn.NC.Stats().OutMsgs > before+1 })
	leave()
	if err := natstest.Receive(t, "the batch ends", result); !errors.Is(err, natsconf.ErrUnavailable) ||
		errors.Is(err, natsconf.ErrUncertain) {
		t.Errorf("after the caller has left: %v", err)
	}
}

// failures returns the number of failed requests to JetStream.
func failures(t *testing.T, conn *natsconf.Conn) (all float64) {
	t.Helper()
	registry := prometheus.NewRegistry()
	conn.Measure(registry)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "verifyd_jetstream_errors_total" {
			for _, m := range f.GetMetric() {
				all += m.GetCounter().GetValue()
			}
		}
	}
	return all
}

// A write that was sent to a server that has vanished is searched for and sent again while its caller has
// time. A long time does not make the wait for one answer longer.
func TestUnansweredWriteIsSentAgain(t *testing.T) {
	t.Parallel()
	virtual.Bubble(t, unansweredWriteIsSentAgain)
}

func unansweredWriteIsSentAgain(t *testing.T) {
	conn := virtual.NewBroker(t).Connect(t, nil)
	s, err := conn.JS.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "ONE", Subjects: []string{"two"},
	})
	if err != nil {
		t.Fatal(err)
	}
	vanished := make(chan struct{}, 1)
	silent, err := conn.NC.Subscribe("one", func(*nats.Msg) { vanished <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	leads := make(chan error, 1)
	go func() {
		select {
		case <-vanished:
		case <-t.Context().Done():
			return
		}
		config := s.CachedInfo().Config
		config.Subjects = []string{"one"}
		_, err := conn.JS.UpdateStream(t.Context(), config)
		leads <- errors.Join(silent.Unsubscribe(), err)
	}()
	ctx, cancel := wait.For(t.Context(), natstest.TestTimeout)
	defer cancel()
	err = conn.Update(ctx, "ONE", "one", func(*jetstream.RawStreamMsg) (*nats.Msg, error) {
		return &nats.Msg{}, nil
	})
	if err != nil {
		t.Fatal(err) // and the message need not have been sent
	}
	if err := natstest.Receive(t, "the stream takes the subject", leads); err != nil {
		t.Error(err)
	}
}
