package storefile_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/storefile"
	"verifyd/natsconf/topology"
)

func tailOf(dir, stream string, after uint64) *storefile.Tail {
	return storefile.NewTail(embedded.StreamFolder(dir, stream), stream, after)
}

// seen has the messages of a tail, by sequence.
type seen map[uint64]string

func (s seen) take(m *storefile.Message) error {
	if _, twice := s[m.Sequence]; twice {
		return fmt.Errorf("message %d came twice", m.Sequence)
	}
	s[m.Sequence] = fmt.Sprintf("%d %s %q %q", m.Time, m.Subject, m.Header, m.Data)
	return nil
}

// holds fails the test if the stream holds a message that was not seen, or was seen differently.
func (s seen) holds(t *testing.T, c *natsconf.Conn, stream string) (all int) {
	t.Helper()
	_, last, err := c.Bounds(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	for at := uint64(1); at <= last; at++ {
		m, err := c.Next(t.Context(), stream, ">", at)
		if errors.Is(err, natsconf.ErrNotFound) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("%d %s %q %q", m.Time.UnixNano(), m.Subject, rawHeader(t, c, stream, m.Sequence),
			m.Data)
		if s[m.Sequence] != want {
			t.Fatalf("message %d of %s: read %s, want %s", m.Sequence, stream, s[m.Sequence], want)
		}
		at, all = m.Sequence, all+1
	}
	return all
}

// rawHeader asks for a message's header as it is stored.
func rawHeader(t *testing.T, c *natsconf.Conn, stream string, sequence uint64) []byte {
	t.Helper()
	var answer struct {
		Message struct {
			Header []byte `json:"hdrs"`
		} `json:"message"`
	}
	m, err := c.NC.RequestWithContext(t.Context(), "$JS.API.STREAM.MSG.GET."+stream,
		fmt.Appendf(nil, `{"seq":%d}`, sequence))
	if err == nil {
		err = json.Unmarshal(m.Data, &answer)
	}
	if err != nil {
		t.Fatal(err)
	}
	return answer.Message.Header
}

// A tail sees everything that stays in a stream, once, however the server rewrites its files: batches,
// overwritten and purged messages, and those left out of rewritten files.
func TestTailSeesEverythingStored(t *testing.T) {
	natstest.NeedsEmbedded(t, "reads an embedded server's files")
	dir := t.TempDir()
	c, _ := natstest.StartIn(t, dir)
	natstest.Outdate(t, c) // older builds removed entries by roll-ups
	facts, records := topology.StreamCompletions, topology.BucketStream(topology.BucketSessions)
	tails, all := map[string]*storefile.Tail{}, map[string]seen{}
	for _, stream := range []string{facts, records} {
		tails[stream], all[stream] = tailOf(dir, stream, 0), seen{}
		defer tails[stream].Close()
	}
	read := func() {
		t.Helper()
		for stream, tail := range tails {
			if err := tail.Read(all[stream].take); err != nil {
				t.Fatal(err)
			}
		}
	}
	big := bytes.Repeat([]byte("x"), 300<<10)
	for round := range 30 {
		var batch []*nats.Msg
		for i := range 100 {
			batch = append(batch, &nats.Msg{
				Subject: fmt.Sprintf("completion.s%d_%d", round, i), Data: fmt.Append(nil, i),
				Header: nats.Header{"N": {"n"}},
			})
		}
		if err := c.PublishBatch(t.Context(), facts, batch...); err != nil {
			t.Fatal(err)
		}
		for i := range 5 { // ten of these fill a file of the bucket, and each but the last is overwritten
			m := &nats.Msg{
				Subject: topology.BucketSubject(topology.BucketSessions, fmt.Sprint("k", i)), Data: big,
			}
			if i == 4 && round%3 == 0 {
				m.Data, m.Header = nil, nats.Header{
					jetstream.MsgRollup: {jetstream.MsgRollupSubject}, "KV-Operation": {"PURGE"},
				}
			}
			natstest.Publish(t, c, m.Subject, m.Data, m.Header)
		}
		if round%4 != 3 {
			read()
		}
	}
	read()
	if n := all[facts].holds(t, c, facts); n != 3000 {
		t.Errorf("%d facts stand", n)
	}
	if n := all[records].holds(t, c, records); n != 5 {
		t.Errorf("%d records stand", n)
	}
	from := seen{} // one that begins in the middle
	tail := tailOf(dir, facts, 1500)
	defer tail.Close()
	if err := tail.Read(from.take); err != nil || len(from) != 1500 || from[1500] != "" {
		t.Errorf("%d messages after the 1500th, %v", len(from), err)
	}
}

// A message that replaced another one and whose life ended before it was read leaves no trace but that it was
// missed: who follows the files would keep what it replaced.
func TestTailKnowsThatItMissedSomething(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	conn, _ := natstest.StartIn(t, dir)
	natstest.NeedsEmbedded(t, "its files")
	stream := topology.BucketStream(topology.BucketAlarms)
	subject := topology.BucketSubject(topology.BucketAlarms, "cause")
	tail := tailOf(dir, stream, 0)
	defer tail.Close()
	missed := func() bool {
		if err := tail.Read(seen{}.take); err != nil {
			t.Fatal(err)
		}
		return tail.Missed()
	}
	for range 3 { // each replaces the one before, all of which are in the files
		natstest.Publish(t, conn, subject, []byte("raised"))
	}
	if missed() {
		t.Error("it missed a message that is in the files")
	}
	natstest.Publish(t, conn, subject, []byte("resolved"), nats.Header{jetstream.MsgTTLHeader: {"1s"}})
	natstest.Await(t, "its life has ended", func() bool {
		_, err := conn.Last(t.Context(), stream, subject)
		return errors.Is(err, natsconf.ErrNotFound)
	})
	if !missed() {
		t.Error("it does not know that it missed a message")
	}
	natstest.Publish(t, conn, subject, []byte("raised"))
	if missed() {
		t.Error("it missed another one")
	}
}

// A record that was altered is an error, not an end.
func TestTailReportsWhatWasAltered(t *testing.T) {
	natstest.NeedsEmbedded(t, "alters an embedded server's files")
	dir := t.TempDir()
	c, stop := natstest.StartIn(t, dir)
	for i := range 10 {
		natstest.Publish(t, c, fmt.Sprint("completion.s", i), []byte("outcome"))
	}
	stop()
	path := storefile.BlockPath(embedded.StreamFolder(dir, topology.StreamCompletions), 1)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	read := seen{}
	tail := tailOf(dir, topology.StreamCompletions, 0)
	defer tail.Close()
	natstest.Await(t, "the record to count as altered", func() bool {
		return errors.Is(tail.Read(read.take), storefile.ErrTail)
	})
	if len(read) == 0 || len(read) > 5 {
		t.Errorf("%d messages were read before it", len(read))
	}
}
