package transfer

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/storefile"
)

// fuzzKey is the master key under which the seeds are sealed that a service wrote.
var fuzzKey = secretbox.Key([]byte("verifyd fuzz seeds, not a secret"))

// A copy's frames are read as they are written, or are damage: each message follows its stream, and a pass
// ends with as many as there were.
func FuzzCopyEntries(f *testing.F) {
	f.Add([]byte("s\x01a\x00m\x01\x02\x01a\x00\x01bc\x02\x01"))
	f.Add([]byte("m\x01\x02\x01a\x00\x01bc\x02\x01"))
	f.Add([]byte("c\x02\x00"))
	f.Add([]byte("s\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01a"))
	seed := frameWriter{w: io.Discard, box: fuzzKey.Box(copyUse)}
	if err := backupOfAService(f).each(fuzzKey, func(asset string, items []Item) error {
		for _, it := range items {
			if len(seed.buffer) < 4<<10 {
				_ = seed.message(asset, time.Hour, storedItem(it))
			}
		}
		return nil
	}, func(ending) {}); err != nil {
		f.Fatal(err)
	}
	f.Add(append(bytes.Clone(seed.buffer), append([]byte{entryCommit, 2}, byte(seed.messages))...))
	type message struct {
		Stream string
		Life   time.Duration
		storefile.Message
	}
	box := fuzzKey.Box(copyUse)
	read := func(b []byte, written *bytes.Buffer) (all []message, commits []time.Time, err error) {
		w := &frameWriter{w: written, box: box}
		e := entryReader{visitor: copyVisitor{
			message: func(stream string, life time.Duration, m *storefile.Message) error {
				all = append(all, message{stream, life, *m})
				return w.message(stream, life, m)
			},
			commit: func(at time.Time) {
				commits = append(commits, at)
				if err := w.commit(at); err != nil {
					panic(err)
				}
			},
		}}
		err = e.take(b)
		return all, commits, err
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var written, again bytes.Buffer
		all, commits, err := read(b, &written)
		if err != nil {
			if !errors.Is(err, errEntries) {
				t.Fatalf("%q: %v", b, err)
			}
			return
		}
		var size int
		for _, m := range all {
			if size += len(m.Subject) + len(m.Header) + len(m.Data); m.Stream == "" {
				t.Fatalf("%q holds a message of no stream", b)
			}
		}
		if size > len(b) {
			t.Fatalf("%q holds %d bytes", b, size)
		}
		if len(commits) == 0 {
			return // what follows the last does not count
		}
		plain, _, err := readFrame(&written, int64(written.Len()), box, frameOwner("", 0))
		if err != nil {
			t.Fatal(err)
		}
		if len(commits) == 1 {
			all2, commits2, err := read(plain, &again)
			if err != nil || !reflect.DeepEqual(commits2, commits) || len(all2) > len(all) ||
				len(all2) > 0 && !reflect.DeepEqual(all2, all[:len(all2)]) {
				t.Fatalf("%q is read as %+v, and written as %q, which is read as %+v, %v", b, all, plain,
					all2, err)
			}
		}
	})
}

// backupOfAService is what a service wrote: cmd/verifyd, TestFuzzSeeds.
func backupOfAService(f *testing.F) *File {
	f.Helper()
	b, err := os.ReadFile(backupSeed)
	if err != nil {
		f.Fatal(err)
	}
	file, err := Open(bytes.NewReader(b))
	if err != nil {
		f.Fatal(err)
	}
	return file
}

// The lines of a backup are items between the name of their asset and its end, which has their number and
// sum; anything else is damage. They are read in the same way as line by line.
func FuzzBackupLines(f *testing.F) {
	file := backupOfAService(f)
	_, _ = file.r.Seek(int64(len(file.first)+1), io.SeekStart)
	zip, err := gzip.NewReader(&chunkReader{r: file.r, box: fuzzKey.Box(sealUse), backup: nameOf(file.first)})
	if err != nil {
		f.Fatal(err)
	}
	whole, err := io.ReadAll(zip)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte(`{"asset":"A"}` + "\n" + `{"end":{"asset":"A","count":0,"digest":"` + (&Sum{}).Digest() +
		`"}}` + "\n"))
	f.Add([]byte(`{"asset":"A","item":{"s":"x"}}` + "\n" + `{"end":{"asset":"A","count":0,"digest":"` +
		(&Sum{}).Digest() + `"}}` + "\n"))
	f.Add([]byte(`{"asset":"A"}` + "\n" + `{"item":{"s":"x"}}`))
	f.Add([]byte(`{"asset":"A"}{"item":{"s":"x"}}{"end":{"asset":"A","count":1,"digest":"` +
		(&Sum{}).Digest() + `"}}`))
	f.Add([]byte(`{"item":{"s":"x"}}`))
	f.Add([]byte(`{"asset":"A"}{"asset":"B"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		held, ended := map[string][]Item{}, map[string]bool{}
		r := backupReader{page: func(asset string, items []Item) error {
			held[asset] = append(held[asset], items...)
			return nil
		}, end: func(e ending) {
			var sum Sum
			for _, it := range held[e.Asset] {
				sum.add(it)
			}
			if !ended[e.Asset] && (sum.Count != e.Count || sum.Digest() != e.Digest) {
				t.Fatalf("%q ends %s with %d items, %d are there", text, e.Asset, e.Count, sum.Count)
			}
			ended[e.Asset] = true
		}}
		if err := r.read(bytes.NewReader(text)); err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		items := 0
		for asset, some := range held {
			if items += len(some); !ended[asset] {
				t.Fatalf("%q: %s has no end", text, asset)
			}
		}
		lines := json.NewDecoder(bytes.NewReader(text))
		for {
			var l struct{ Item *Item }
			if err := lines.Decode(&l); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			if l.Item != nil {
				items--
			}
		}
		if items != 0 {
			t.Fatalf("%q: %d items were passed over", text, -items)
		}
	})
}

// backupSeed is a backup that a service wrote.
const backupSeed = "testdata/seed.backup"

// A backup that was changed in any part is refused, and only for damage, its version, or for being none.
func FuzzBackup(f *testing.F) {
	whole, err := os.ReadFile(backupSeed)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(0, byte(0), len(whole))
	f.Add(9, byte(1), len(whole))
	f.Add(len(whole)-1, byte(0x80), len(whole))
	f.Add(0, byte(0), len(whole)-1)
	f.Add(bytes.IndexByte(whole, '\n'), byte(7), len(whole))
	f.Add(bytes.IndexByte(whole, '\n')+1, byte(1), len(whole))
	f.Fuzz(func(t *testing.T, at int, by byte, size int) {
		b := bytes.Clone(whole[:uint(size)%uint(len(whole)+1)])
		if len(b) > 0 {
			b[uint(at)%uint(len(b))] ^= by
		}
		file, err := Open(bytes.NewReader(b))
		if err == nil {
			_, err = file.Check(fuzzKey, func(string, string) {})
		}
		_, newer := errors.AsType[*VersionError](err)
		switch changed := !bytes.Equal(b, whole); {
		case changed && err == nil:
			t.Fatalf("changed at %d of %d by %x, it passes", at, len(b), by)
		case !changed && err != nil:
			t.Fatal(err)
		case err != nil && !newer && !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNoBackup) &&
			!errors.Is(err, ErrAnotherKey):
			t.Fatalf("changed at %d of %d by %x: %v", at, len(b), by, err)
		}
	})
}

// The first line of a backup is all that is read without the key, and is bounded.
func FuzzBackupHeader(f *testing.F) {
	f.Add(append(backupOfAService(f).first, '\n'))
	f.Add([]byte(`{"format":"verifyd backup","version":1,"id":"x"}` + "\n"))
	f.Add([]byte(`{"format":"verifyd backup","version":2,"build":"9"}` + "\n"))
	f.Add([]byte(`{"format":"verifyd copy","version":1}` + "\n"))
	f.Add([]byte(`{"format":"verifyd backup","version":1,"beyond":1e700}` + "\n"))
	f.Add([]byte(strings.Repeat(" ", maxHeader) + `{"format":"verifyd backup","version":1}` + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := Open(bytes.NewReader(b))
		_, newer := errors.AsType[*VersionError](err)
		if (file == nil) != (err != nil) || err != nil && !newer && !errors.Is(err, ErrNoBackup) {
			t.Fatalf("%q: %+v, %v", b, file, err)
		}
		if err != nil {
			return
		}
		first, _, found := bytes.Cut(b, []byte("\n"))
		var std map[string]json.RawMessage
		if !found || len(first) >= maxHeader || json.Unmarshal(first, &std) != nil ||
			!bytes.Equal(file.first, first) ||
			file.Header.Format != backupFormat || !file.Header.isRead() ||
			file.Header.IsCopy() {
			t.Fatalf("%q is read as %+v", b, file.Header)
		}
	})
}
