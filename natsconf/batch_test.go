package natsconf_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
)

// Two entries change together or not at all.
func TestBatchIsAllOrNothing(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	stream := topology.BucketStream(topology.BucketKeys)
	msg := func(entry, data string, after uint64) *nats.Msg {
		return &nats.Msg{
			Subject: topology.BucketSubject(topology.BucketKeys, entry), Data: []byte(data),
			Header: nats.Header{jetstream.ExpectedLastSubjSeqHeader: {fmt.Sprint(after)}},
		}
	}
	if err := conn.PublishBatch(t.Context(), stream, msg("a", "1", 0), msg("b", "1", 0)); err != nil {
		t.Fatal(err)
	}
	a, err := conn.Last(t.Context(), stream, topology.BucketSubject(topology.BucketKeys, "a"))
	if err != nil {
		t.Fatal(err)
	}
	// The second message comes too late, so the first is not stored either.
	if err := conn.PublishBatch(t.Context(), stream, msg("c", "1", 0),
		msg("a", "2", a.Sequence+7)); !errors.Is(err, natsconf.ErrConflict) {
		t.Errorf("a batch with a conflict: %v", err)
	}
	if _, err := conn.Last(t.Context(), stream,
		topology.BucketSubject(topology.BucketKeys, "c")); !errors.Is(err, natsconf.ErrNotFound) {
		t.Errorf("the other message of a refused batch: %v", err)
	}
	if err := conn.PublishBatch(t.Context(), stream, msg("c", "1", 0),
		msg("a", "2", a.Sequence)); err != nil {
		t.Errorf("a batch that fits: %v", err)
	}
	for entry, want := range map[string]string{"a": "2", "b": "1", "c": "1"} {
		m, err := conn.Last(t.Context(), stream, topology.BucketSubject(topology.BucketKeys, entry))
		if err != nil || string(m.Data) != want {
			t.Errorf("%s: %v, %v", entry, m, err)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := conn.PublishBatch(over, stream, msg("d", "1", 0), msg("e", "1", 0)); !errors.Is(err,
		natsconf.ErrUnavailable) {
		t.Errorf("after the caller has gone: %v", err)
	}
}

// A server has only so many batches of a stream open at once. One that is refused for that is stored when
// another has ended.
func TestBatchWaitsForOthers(t *testing.T) {
	t.Parallel()
	natstest.NeedsEmbedded(t, "how many batches are open")
	conn := natstest.Start(t)
	const most = 50
	subject := func(i int) string { return topology.BucketSubject(topology.BucketKeys, fmt.Sprint("k", i)) }
	part := func(i int, number string) *nats.Msg {
		return &nats.Msg{Subject: subject(i), Header: nats.Header{
			"Nats-Batch-Id": {fmt.Sprint("open", i)}, "Nats-Batch-Sequence": {number},
		}}
	}
	for i := range most {
		if err := conn.NC.PublishMsg(part(i, "1")); err != nil {
			t.Fatal(err)
		}
	}
	tries := make(chan *nats.Msg, 100)
	sub, err := conn.NC.ChanSubscribe(subject(most), tries)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	ended := make(chan error, 1)
	go func() {
		ended <- conn.PublishBatch(t.Context(), topology.BucketStream(topology.BucketKeys),
			&nats.Msg{Subject: subject(most + 1)}, &nats.Msg{Subject: subject(most)})
	}()
	for range 2 { // the second is another try, unless the first is the end
		select {
		case <-tries:
		case err := <-ended:
			t.Fatalf("with %d open batches: %v", most, err)
		}
	}
	end := part(0, "2")
	end.Header.Set("Nats-Batch-Commit", "1")
	if err := conn.NC.PublishMsg(end); err != nil {
		t.Fatal(err)
	}
	if err := natstest.Receive(t, "the batch", ended); err != nil {
		t.Errorf("when another has ended: %v", err)
	}
}
