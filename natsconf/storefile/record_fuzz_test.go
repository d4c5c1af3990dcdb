package storefile_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/minio/highwayhash"
	"github.com/nats-io/nats.go"

	"verifyd/natsconf/embedded"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/storefile"
	"verifyd/natsconf/topology"
)

const (
	headBytes = 22 // of a record, before its subject
	sumBytes  = 8  // and after its data
)

// blockFile returns what a server wrote: single messages and a batch, with headers and without, and one that
// was overwritten.
func blockFile(t *testing.T, stream string) []byte {
	t.Helper()
	dir := t.TempDir()
	c, stop := natstest.StartIn(t, dir)
	subject := func(n int) string { return fmt.Sprint("session-keys.p", n) }
	header := nats.Header{"N": {"n"}, "Nats-TTL": {"1h"}}
	var batch []*nats.Msg
	for n := range 3 {
		m := &nats.Msg{Subject: subject(n), Data: []byte("data")}
		if err := c.PublishOne(t.Context(), stream, m); err != nil {
			t.Fatal(err)
		}
		batch = append(batch, &nats.Msg{Subject: subject(n + 3), Header: header})
	}
	if err := c.PublishBatch(t.Context(), stream, batch...); err != nil {
		t.Fatal(err)
	}
	if err := c.Destroy(t.Context(), stream, subject(1), 0); err != nil {
		t.Fatal(err)
	}
	stop()
	b, err := os.ReadFile(storefile.BlockPath(embedded.StreamFolder(dir, stream), 1))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// sumOf returns the checksum that a record should have.
func sumOf(stream string, raw []byte) []byte {
	key := sha256.Sum256(fmt.Appendf(nil, "%s-1", stream))
	hash, err := highwayhash.New64(key[:])
	if err != nil {
		panic(err)
	}
	le := binary.LittleEndian
	subject := raw[headBytes : headBytes+int(le.Uint16(raw[20:]))]
	rest := raw[headBytes+len(subject) : len(raw)-sumBytes]
	if le.Uint32(raw)&(1<<31) != 0 {
		rest = rest[4:]
	}
	for _, part := range [][]byte{raw[4:20], subject, rest} {
		_, _ = hash.Write(part)
	}
	return hash.Sum(nil)
}

// sumUp sets valid checksums in everything that looks like a record, so that its content is read.
func sumUp(stream string, b []byte) {
	le := binary.LittleEndian
	for len(b) >= headBytes {
		size, minimum := int(le.Uint32(b)&^(1<<31)), headBytes+int(le.Uint16(b[20:]))+sumBytes
		if le.Uint32(b)&(1<<31) != 0 {
			minimum += 4
		}
		if size < minimum || size > len(b) {
			return
		}
		copy(b[size-sumBytes:], sumOf(stream, b[:size]))
		b = b[size:]
	}
}

// checkFile compares what is read of a block file, in a stream's folder, with its bytes: no record with a
// wrong checksum is passed on, no byte is skipped, and a scan of the file and a tail agree about its
// messages.
func checkFile(t *testing.T, folder, stream string, b []byte) (records int) {
	t.Helper()
	if err := os.WriteFile(storefile.BlockPath(folder, 1), b, 0o600); err != nil {
		t.Fatal(err)
	}
	var want []string // the messages before the first damage
	at, last, holes := 0, uint64(0), 0
	storefile.Records(stream, 1, b, func(m storefile.Message, raw []byte, stands bool) {
		if !bytes.Equal(b[at:at+len(raw)], raw) || !bytes.Equal(raw[len(raw)-sumBytes:], sumOf(stream, raw)) {
			t.Fatalf("a record at %d that is none: %x", at, raw)
		}
		at += len(raw)
		next := holes == 0 && m.Sequence > last
		if next {
			last = m.Sequence // also that of a record that was overwritten
		}
		if !stands {
			return
		}
		records++
		if next {
			want = append(want, text(&m))
		}
	}, func(from, to int) {
		if from != at || to <= from {
			t.Fatalf("a hole from %d to %d, behind %d", from, to, at)
		}
		at, holes = to, holes+1
	})
	if at != len(b) {
		t.Fatalf("%d bytes are read of %d", at, len(b))
	}
	s, err := storefile.Scan(folder, stream)
	if err != nil || s.Records != uint64(records) {
		t.Errorf("%+v, %v; %d records", s, err, records)
	}
	tail, got := storefile.NewTail(folder, stream, 0), []string(nil)
	defer tail.Close()
	err = tail.ReadOnce(func(m *storefile.Message) error {
		got = append(got, text(m))
		return nil
	})
	if err != nil && (holes == 0 || !errors.Is(err, storefile.ErrTail)) {
		t.Error(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the tail gave %q, the file holds %q", got, want)
	}
	return records
}

var update = flag.Bool("update", false, "write the block file that fuzzing begins with anew")

const (
	fuzzed   = topology.StreamSessionKeys
	seedFile = "testdata/session-keys.blk"
)

// What a server wrote is read in full.
func TestRecordsOfAServer(t *testing.T) {
	natstest.NeedsEmbedded(t, "what its files hold")
	b := blockFile(t, fuzzed)
	if *update {
		if err := os.WriteFile(seedFile, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	seed, err := os.ReadFile(seedFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range [][]byte{b, seed} {
		if n := checkFile(t, blockFolder(t), fuzzed, b); n != 5 { // one was overwritten
			t.Errorf("%d records stand", n)
		}
	}
}

func blockFolder(tb testing.TB) string {
	tb.Helper()
	folder := tb.TempDir()
	if err := os.Mkdir(filepath.Join(folder, storefile.BlockFolder), 0o700); err != nil {
		tb.Fatal(err)
	}
	return folder
}

// checkFile passes for any content of a block file.
func FuzzRecord(f *testing.F) {
	seed, err := os.ReadFile(seedFile) // a server here would add coverage
	if err != nil {
		f.Fatal(err)
	}
	flipped := slices.Clone(seed)
	flipped[len(flipped)/2] ^= 1
	for _, sums := range []bool{false, true} {
		f.Add(seed, sums)
		f.Add(flipped, sums)
		f.Add(seed[:len(seed)-3], sums)
		f.Add([]byte{}, sums)
	}
	folder := blockFolder(f)
	f.Fuzz(func(t *testing.T, b []byte, sums bool) {
		b = slices.Clone(b)
		if sums {
			sumUp(fuzzed, b)
		}
		checkFile(t, folder, fuzzed, b)
	})
}

// text formats a message.
func text(m *storefile.Message) string {
	return fmt.Sprintf("%d %d %s %q %q", m.Sequence, m.Time, m.Subject, m.Header, m.Data)
}
