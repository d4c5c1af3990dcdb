package embedded_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"verifyd/natsconf"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/storefile"
	"verifyd/natsconf/topology"
)

// servedEntries messages of twoBlocks bytes take a block file of 8 MiB and a part of another. The server has
// read the last one when it starts, if the stream takes batches.
const servedEntries, twoBlocks = 50, 200 << 10

// served is a store that is being served and has not read its blocks yet.
type served struct {
	t              *testing.T
	dir            string
	stream, prefix string // which holds servedEntries messages on subjects of its own
	server         *embedded.Server
	conn           *natsconf.Conn
	stop           func()
}

func newServed(t *testing.T, stream, prefix string, size int) *served {
	t.Helper()
	natstest.NeedsEmbedded(t, "what its files hold")
	t.Parallel()
	s := &served{t: t, dir: filepath.Join(t.TempDir(), "store"), stream: stream, prefix: prefix}
	conn, stop := openStore(t, s.dir)
	for i := range servedEntries {
		if _, err := conn.JS.Publish(t.Context(), s.subject(i), make([]byte, size)); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	s.open()
	return s
}

func (s *served) subject(i int) string { return fmt.Sprintf("%st%d", s.prefix, i) }

func (s *served) open() {
	s.t.Helper()
	var err error
	s.conn, s.stop, err = tryStoreAs(s.t, s.dir, embedded.SyncAlways,
		func(e *embedded.Server) { s.server = e })
	if err != nil {
		s.t.Fatal(err)
	}
	natstest.Await(s.t, "the witness knows all of it", func() bool {
		return embedded.WitnessHas(s.dir, map[string]uint64{s.stream: servedEntries})
	})
}

// harm changes the stream's file. What the server has of it in memory goes with the garbage.
func (s *served) harm(edit func([]byte) []byte) {
	s.t.Helper()
	defer runtime.GC()
	change(s.t, filepath.Join(embedded.StreamFolder(s.dir, s.stream), "msgs", "1.blk"), edit)
}

// begin returns where the record of a sequence begins, in a block of records of new subjects.
func begin(b []byte, sequence int) (at int) {
	for range sequence - 1 {
		at += int(binary.LittleEndian.Uint32(b[at:]) &^ (1 << 31))
	}
	return at
}

// cutLength makes the length of a record impossible: the server cuts the block off before it.
func cutLength(b []byte) []byte {
	b[begin(b, 20)+3] ^= 1 << 6
	return b
}

// cutEnd removes the last record.
func cutEnd(b []byte) []byte { return b[:begin(b, servedEntries)] }

// write stores one more message, which the server may not acknowledge.
func (s *served) write() error {
	return s.conn.PublishOne(s.t.Context(), s.stream, nats.NewMsg(s.subject(servedEntries)))
}

// A record's length is damaged while the store is served. The server cuts the block off there, and goes on
// without what followed. No read reports any of it as not found, no write is acknowledged, and the store has
// failed; its next start refuses it. A recovery has everything but the damaged record.
func TestLossWhileServedFailsTheStore(t *testing.T) {
	s := newServed(t, topology.BucketStream(topology.BucketAccounts), "$KV.accounts.", twoBlocks)
	s.harm(cutLength)
	if err := s.write(); err != nil {
		t.Fatal(err) // it needs nothing of the block; a read does
	}
	s.readAll()
	natstest.Receive(t, "the store has failed permanently", s.server.Abandoned())
	if err := s.server.Failure(); err == nil || !strings.Contains(err.Error(), s.stream) {
		t.Errorf("the failure reads %v", err)
	}
	if err := s.write(); !errors.Is(err, natsconf.ErrUnavailable) {
		t.Errorf("a write after it: %v", err)
	}
	s.stop()
	s.recover(servedEntries) // with the new one, without the damaged one
}

// readAll reads each entry. None may be reported as not found.
func (s *served) readAll() {
	s.t.Helper()
	for i := range servedEntries {
		_, err := s.conn.Last(s.t.Context(), s.stream, s.subject(i))
		if errors.Is(err, natsconf.ErrNotFound) {
			s.t.Fatalf("%s is reported as not found", s.subject(i))
		}
	}
}

// recover recovers the store, which its start refuses, and compares how many entries are left.
func (s *served) recover(left int) {
	s.t.Helper()
	_, _, err := tryStore(s.t, s.dir)
	if damage, ok := errors.AsType[*embedded.DamageError](err); !ok || damage.Damages[0].Stream != s.stream {
		s.t.Fatalf("the next start: %v", err)
	}
	e := open(s.t, s.dir)
	if r, err := e.BeginRecovery(); err != nil || r == nil {
		s.t.Fatalf("recovery: %v, %v", r, err)
	}
	natstest.Serve(s.t, e)
	<-e.Ready()
	if err := e.EndRecovery(); err != nil {
		s.t.Fatal(err)
	}
	held, err := storefile.Scan(embedded.StreamFolder(s.dir, s.stream), s.stream)
	if err != nil || held.Records != uint64(left) {
		s.t.Errorf("%d entries are left, want %d; %v", held.Records, left, err)
	}
}

// The end of a watched bucket is lost, which the server does not report. The watch ends, and by then the
// store has failed: nobody takes what is left for the truth.
func TestWatchOfALostEndFailsTheStore(t *testing.T) {
	s := newServed(t, topology.BucketStream(topology.BucketAccounts), "$KV.accounts.", 8)
	var f natsconf.Freshness
	w := s.conn.Watch(t.Context(), topology.BucketAccounts, ">", &f)
	defer w.Close()
	for e := range w.Updates() {
		if e == nil { // all of them
			break
		}
	}
	s.harm(cutEnd)
	for range w.Updates() {
		t.Error("something new is seen")
	}
	if s.server.Failure() == nil {
		t.Errorf("the watch ended with %v, and the store has not failed", w.Err())
	}
	natstest.Receive(t, "the store has failed permanently", s.server.Abandoned())
	s.stop()
	s.recover(servedEntries - 1)
}

// A lost end is seen although nobody watches, also if a write takes its sequence again at once.
func TestLostEndIsSeen(t *testing.T) {
	t.Parallel()
	for _, write := range []bool{false, true} {
		t.Run(fmt.Sprintf("write=%t", write), func(t *testing.T) {
			s := newServed(t, topology.StreamAudit, "audit.a.", 8) // its blocks are read when they are needed
			s.harm(cutEnd)
			_, _ = s.conn.Last(t.Context(), s.stream, s.subject(0))
			natstest.Await(t, "the end is lost", func() bool {
				_, last, err := s.conn.Bounds(t.Context(), s.stream)
				return err != nil || last < servedEntries
			})
			if write {
				_ = s.write()
			}
			natstest.Receive(t, "the store has failed permanently", s.server.Abandoned())
			s.stop()
		})
	}
}

// Damage in a stream that no session needs stops what needs it, and nothing else. The next start knows of it.
func TestLossInAStreamAside(t *testing.T) {
	s := newServed(t, topology.StreamNotices, "notice.a.", 8)
	s.harm(cutLength)
	s.readAll()
	if err := s.write(); !errors.Is(err, natsconf.ErrUnavailable) {
		t.Errorf("a write to it: %v", err)
	}
	if err := s.server.Failure(); err != nil {
		t.Errorf("the store has failed: %v", err)
	}
	if damages := s.server.Damages(); len(damages) != 1 || damages[0].Stream != s.stream {
		t.Errorf("the damages are %v", damages)
	}
	err := s.conn.PublishOne(t.Context(), topology.StreamCompletions, nats.NewMsg("completion.x"))
	_, read := s.conn.Last(t.Context(), topology.StreamCompletions, "completion.x")
	if err := errors.Join(err, read); err != nil {
		t.Errorf("another stream: %v", err)
	}
	s.stop()
	if _, _, err := tryStore(t, s.dir); err == nil || !strings.Contains(err.Error(), s.stream) {
		t.Errorf("the next start: %v", err)
	}
}

// Events may be lost: what is left is read, and the next start repairs it.
func TestLossOfEventsStopsNothing(t *testing.T) {
	s := newServed(t, topology.StreamEvents, "session.x.", 8)
	s.harm(cutLength)
	natstest.Await(t, "it is seen", func() bool {
		_, _ = s.conn.Last(t.Context(), s.stream, s.subject(servedEntries-1))
		return len(s.server.Damages()) > 0
	})
	if _, err := s.conn.Last(t.Context(), s.stream, s.subject(0)); err != nil {
		t.Errorf("what is left: %v", err)
	}
	s.stop()
	_, stop := openStore(t, s.dir)
	stop()
}
