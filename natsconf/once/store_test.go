package once

import (
	"context"
	"errors"
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
)

// as is the header of a writer that has chosen its nonce.
func as(nonce string) nats.Header { return nats.Header{NonceHeader: {nonce}} }

// The answer to a write was lost, and the write is repeated: the repeat looks like a conflict, and is
// recognized as one's own by its nonce.
func TestRepeatOfOnesOwnWriteIsAWin(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	writer := natstest.Writer(t, conn, topology.StreamCompletions)
	store := func(nonce string) (*jetstream.RawStreamMsg, error) {
		m := &nats.Msg{Subject: "completion.mine", Data: []byte("mine"), Header: as(nonce)}
		return Store(t.Context(), conn, topology.StreamCompletions, m, ByWriter(writer))
	}
	if _, err := store("nonce-a"); err != nil {
		t.Fatal(err)
	}
	if _, err := store("nonce-a"); err != nil {
		t.Errorf("repeat: %v", err)
	}
	if existing, err := store("nonce-b"); !errors.Is(err, ErrTaken) || string(existing.Data) != "mine" {
		t.Errorf("another's write: %+v, %v", existing, err)
	}
}

// A writer that does not run never answers: the outcome is uncertain, whatever the caller does, until the
// leader was read.
func TestUnansweredWriteIsUncertain(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	idle := natsconf.NewWriter(conn, topology.StreamCompletions)
	store := func(ctx context.Context) error {
		m := &nats.Msg{Subject: "completion.late", Data: []byte("late"), Header: as("nonce")}
		_, err := Store(ctx, conn, topology.StreamCompletions, m, ByWriter(idle))
		return err
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := store(ctx); !errors.Is(err, natsconf.ErrUncertain) {
		t.Errorf("err = %v, want ErrUncertain", err)
	}
	// What was in the mailbox is stored later, as can happen; the repeat finds it.
	natstest.Serve(t, idle)
	if _, err := idle.Publish(t.Context(), &nats.Msg{Subject: "completion.after"}); err != nil {
		t.Fatal(err)
	}
	if err := store(t.Context()); err != nil {
		t.Errorf("repeat after the late write landed: %v", err)
	}
}

// A message is replaced if it is still the one that was read, or has left the stream, and not if another has
// replaced it. The answer to the first try is lost.
func TestReplaceIsOfWhatWasRead(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	stream := topology.BucketStream(topology.BucketIdempotency)
	subject := topology.BucketSubject(topology.BucketIdempotency, "k")
	lossy := func(lost error, stored bool) Publisher {
		first := true
		return func(ctx context.Context, m *nats.Msg) error {
			if !first {
				return conn.PublishOne(ctx, stream, m)
			}
			first = false
			if stored {
				if err := conn.PublishOne(ctx, stream, m); err != nil {
					return err
				}
			}
			return lost
		}
	}
	replace := func(data string, last uint64, publish Publisher) (*jetstream.RawStreamMsg, error) {
		m := &nats.Msg{Subject: subject, Data: []byte(data)}
		return Replace(t.Context(), conn, stream, m, last, publish)
	}
	newest := func() *jetstream.RawStreamMsg {
		m, err := conn.Last(t.Context(), stream, subject)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	before := uint64(0)
	for i, publish := range []Publisher{
		lossy(natsconf.ErrUncertain, true), lossy(natsconf.ErrUncertain, false),
		lossy(natsconf.ErrConflict, false),
	} {
		data := strconv.Itoa(i)
		if _, err := replace(data, before, publish); err != nil {
			t.Fatalf("replacement %d: %v", i, err)
		}
		m := newest()
		if string(m.Data) != data {
			t.Errorf("after replacement %d there is %s", i, m.Data)
		}
		before = m.Sequence
	}
	if existing, err := replace("late", before-1, lossy(natsconf.ErrConflict, false)); !errors.Is(err,
		ErrTaken) || existing.Sequence != before {
		t.Errorf("of a message that was replaced: %+v, %v", existing, err)
	}
	if err := conn.Purge(t.Context(), stream, subject); err != nil {
		t.Fatal(err)
	}
	if _, err := replace("next", before, lossy(natsconf.ErrConflict, false)); err != nil {
		t.Errorf("of a message that has left the stream: %v", err)
	}
}
