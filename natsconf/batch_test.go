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
