package natsconf_test

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/natstest/virtual"
	"verifyd/natsconf/topology"
)

// increment is an edit that counts.
func increment(m *jetstream.RawStreamMsg) (*nats.Msg, error) {
	n := 0
	if m != nil {
		var err error
		if n, err = strconv.Atoi(string(m.Data)); err != nil {
			return nil, err
		}
	}
	return &nats.Msg{Data: []byte(strconv.Itoa(n + 1))}, nil
}

// deleted is the header of a deleted entry's marker.
var deleted = nats.Header{"KV-Operation": {"DEL"}}

func wantCount(t *testing.T, conn *natsconf.Conn, subject string, want int) {
	t.Helper()
	m, err := conn.Last(t.Context(), topology.BucketStream(topology.BucketStore), subject)
	if err != nil || string(m.Data) != strconv.Itoa(want) {
		t.Errorf("counted to %s (%v), want %d", m.Data, err, want)
	}
}

// Many concurrent changes of one entry lose no change, whether each publishes directly or with a writer.
func TestUpdateUnderContention(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	stream, subject := topology.BucketStream(topology.BucketStore),
		topology.BucketSubject(topology.BucketStore, "test.contention")
	w := natstest.Writer(t, conn, stream)
	const writers, each = 8, 5
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for range each {
				if err := conn.Update(t.Context(), stream, subject, increment); err != nil {
					t.Error(err)
				}
			}
		})
		all.Go(func() {
			for range each {
				if err := w.Update(t.Context(), subject, increment); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	wantCount(t, conn, subject, 2*writers*each)
}

// A deleted entry counts as missing, and is replaced. An edit that finds nothing to do writes nothing.
func TestUpdateOfADeletedEntry(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	stream, subject := topology.BucketStream(topology.BucketStore),
		topology.BucketSubject(topology.BucketStore, "test")
	natstest.Publish(t, conn, subject, []byte("7"))
	natstest.Publish(t, conn, subject, nil, deleted)
	if err := conn.Update(t.Context(), stream, subject, increment); err != nil {
		t.Fatal(err)
	}
	if err := conn.Update(t.Context(), stream, subject,
		func(*jetstream.RawStreamMsg) (*nats.Msg, error) {
			return nil, //nolint:nilnil // nothing to do
				nil
		}); err != nil {
		t.Error(err)
	}
	wantCount(t, conn, subject, 1)
}

// A caller that is always overtaken gets an error that says so, and that nothing was stored.
func TestUpdateThatIsAlwaysOvertaken(t *testing.T) {
	t.Parallel()
	virtual.Test(t, updateThatIsAlwaysOvertaken)
}

func updateThatIsAlwaysOvertaken(t *testing.T, conn *natsconf.Conn) {
	stream, subject := topology.BucketStream(topology.BucketStore),
		topology.BucketSubject(topology.BucketStore, "test")
	tries := 0
	err := conn.Update(t.Context(), stream, subject, func(*jetstream.RawStreamMsg) (*nats.Msg, error) {
		tries++
		return &nats.Msg{Data: []byte("ours")}, conn.PublishOne(t.Context(), stream, &nats.Msg{
			Subject: subject, Data: []byte(strconv.Itoa(tries)),
		})
	})
	if !errors.Is(err, natsconf.ErrUnavailable) || errors.Is(err, natsconf.ErrUncertain) ||
		!strings.Contains(err.Error(), "another write came first, 50 times") {
		t.Errorf("the error is %v", err)
	}
	wantCount(t, conn, subject, tries)
	if tries != 50 {
		t.Errorf("tried %d times", tries)
	}
}

// No answer comes to the write of an update. If it was stored it succeeds, if it was lost it is published
// again, and if another's message is there by then, the result is unknown.
func TestUpdateWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]unanswered{
		"the answer is lost":  {lost: answer, want: 1},
		"the message is lost": {lost: request, want: 1},
		"the answer is lost, and another follows": {
			lost: answer, other: true, kind: natsconf.ErrUncertain, want: 2,
		},
		"the message is lost, and another follows": {
			lost: request, other: true, kind: natsconf.ErrUncertain, want: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtual.Bubble(t, c.test)
		})
	}
}

// unanswered is what is lost of a write, and what follows from that.
type unanswered struct {
	lost  int32
	other bool // another one writes meanwhile
	kind  error
	want  int
}

// what is lost
const (
	nothing int32 = iota
	request
	answer
)

func (c unanswered) test(t *testing.T) {
	store := virtual.NewBroker(t)
	direct := store.Connect(t, nil)
	natstest.Ensure(t, direct)
	var lost atomic.Int32
	dropped := make(chan struct{})
	conn := store.Connect(t, func() virtual.Pass {
		return func(toServer bool, _ []byte) bool {
			if toServer && lost.CompareAndSwap(request, nothing) || !toServer &&
				lost.CompareAndSwap(answer, nothing) {
				close(dropped)
				return false
			}
			return true
		}
	})
	stream, subject := topology.BucketStream(topology.BucketStore),
		topology.BucketSubject(topology.BucketStore, "test")
	edits, result := 0, make(chan error, 1)
	go func() {
		result <- conn.Update(t.Context(), stream, subject,
			func(m *jetstream.RawStreamMsg) (*nats.Msg, error) {
				edits++
				lost.Store(c.lost)
				return increment(m)
			})
	}()
	if c.other {
		select {
		case <-dropped:
		case err := <-result:
			t.Fatalf("before anything was lost: %v", err)
		case <-time.After(natstest.TestTimeout):
			t.Fatal("nothing was lost")
		}
		if c.lost == answer {
			natstest.Await(t, "the message is stored", func() bool {
				_, err := direct.Last(t.Context(), stream, subject)
				return err == nil
			})
		}
		if err := direct.Update(t.Context(), stream, subject, increment); err != nil {
			t.Error(err)
		}
	}
	err := natstest.Receive(t, "the update ends", result)
	if !errors.Is(err, c.kind) || edits != 1 {
		t.Errorf("after %d edits the error is %v, want %v", edits, err, c.kind)
	}
	wantCount(t, direct, subject, c.want)
}
