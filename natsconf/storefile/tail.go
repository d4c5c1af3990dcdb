package storefile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

const (
	// tailBuffer is how much of a file is read at once.
	tailBuffer = 256 << 10
	// maxServerRecord is the longest record that the server itself accepts.
	maxServerRecord = 32 << 20
	// batchWait is how often, and batchPause at what interval, the end of a batch that is being written is
	// looked for.
	batchWait  = 100
	batchPause = 2 * time.Millisecond
	// maxPart is how long a record may stay incomplete in a file: a write of the server takes milliseconds.
	maxPart = 2 * time.Second
)

// ErrTail is returned if a stream's files no longer hold what was read from them: the store was changed from
// outside, or is damaged.
var ErrTail = errors.New("the store's files have changed otherwise than by being appended to")

// Tail reads what is appended to a stream of an embedded store, from its files: a tenth of what a consumer
// costs the server. It sees every acknowledged message, and may see one that is about to be acknowledged. It
// does not see that a message was removed that it has read; Missed reports one that was removed before.
type Tail struct {
	stream, folder string
	last           uint64 // sequence of the last message that was read, or that is not wanted

	block  uint32 // the file that is being read; 0: none yet
	file   *os.File
	offset int64
	buffer []byte
	decode *decoder
	batch  bool // the last message belongs to a batch, and is not its end
	missed bool // a message was removed before it was read

	partAt    int64 // where an incomplete record begins; -1: nowhere
	partSince time.Time
}

// NewTail returns a reader of the messages after a sequence in a stream, from the stream's folder. Close
// releases it.
func NewTail(folder, stream string, after uint64) *Tail {
	return &Tail{folder: folder, stream: stream, last: after, partAt: -1}
}

// Close releases the file that is open.
func (t *Tail) Close() {
	if t.file != nil {
		_ = t.file.Close()
		t.file = nil
	}
}

// Missed reports whether messages were removed before they were read, since it was last called: their lives
// had ended, or others had replaced them.
func (t *Tail) Missed() bool {
	missed := t.missed
	t.missed = false
	return missed
}

// Read calls do with each message that was not read yet, oldest first. It waits for the end of a batch that
// is being written. Its errors are ErrTail, those of the files, and do's; after one of them the reader cannot
// be used any more.
func (t *Tail) Read(do func(*Message) error) error {
	for range batchWait {
		if err := t.readOnce(do); err != nil {
			return fmt.Errorf("read the files of %s: %w", t.stream, err)
		}
		if !t.batch {
			return nil
		}
		time.Sleep(batchPause)
	}
	t.batch = false // its end has left the stream already
	return nil
}

func (t *Tail) readOnce(do func(*Message) error) error {
	// any file but the last was complete when they were listed
	blocks, err := Blocks(t.folder)
	if err != nil {
		return err
	}
	if t.block == 0 {
		if blocks, err = t.begin(blocks); err != nil {
			return err
		}
	}
	for i, block := range blocks {
		if block < t.block {
			continue
		}
		if err := t.open(block); err != nil {
			return err
		}
		if err := t.rest(do, i == len(blocks)-1); err != nil {
			return fmt.Errorf("%d.blk: %w", block, err)
		}
	}
	return nil
}

// begin leaves out the files before the one that holds the first wanted message.
func (t *Tail) begin(blocks []uint32) ([]uint32, error) {
	for i, block := range slices.Backward(blocks) {
		if err := t.open(block); err != nil {
			return nil, err
		}
		first, err := t.first()
		if err != nil {
			return nil, fmt.Errorf("%d.blk: %w", block, err)
		}
		t.offset = 0
		if first != 0 && first <= t.last+1 {
			return blocks[i:], nil
		}
	}
	return blocks, nil
}

// open selects the file to read, and begins at its start unless it is open already. If the server has
// replaced the file, it is read from its start, and messages that were read before are skipped by their
// sequence.
func (t *Tail) open(block uint32) error {
	path := BlockPath(t.folder, block)
	if t.file != nil && t.block == block {
		if same, err := t.same(path); same || err != nil {
			return err
		}
	}
	t.Close()
	file, err := os.Open(path) //nolint:gosec // the operator's own data directory
	if errors.Is(err, os.ErrNotExist) {
		t.block, t.offset = block, 0
		return nil // aged out between the listing and now
	}
	if err != nil {
		return err
	}
	t.file, t.block, t.offset, t.partAt = file, block, 0, -1
	t.decode = newDecoder(t.stream, block)
	return nil
}

// same reports whether the open file is still the one of that name.
func (t *Tail) same(path string) (bool, error) {
	now, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return true, nil // removed meanwhile: the open file has everything
	}
	if err != nil {
		return false, err
	}
	open, err := t.file.Stat()
	if err == nil && os.SameFile(now, open) && now.Size() < t.offset {
		err = ErrTail
	}
	return err == nil && os.SameFile(now, open), err
}

// first returns the sequence of the first message in the open file; 0 if there is none.
func (t *Tail) first() (first uint64, err error) {
	stop := errors.New("found")
	err = t.records(func(r *record) error {
		if r.deleted || r.erased {
			return nil
		}
		first = r.Sequence
		return stop
	}, true)
	if errors.Is(err, stop) {
		err = nil
	}
	return first, err
}

// rest reads the open file to its end.
func (t *Tail) rest(do func(*Message) error, growing bool) error {
	return t.records(func(r *record) error {
		if r.Sequence <= t.last {
			return nil
		}
		if !r.deleted && !r.erased {
			if err := do(&r.Message); err != nil {
				return err
			}
		}
		t.missed = t.missed || r.deleted || r.Sequence > t.last+1
		t.last = r.Sequence
		t.batch = !r.deleted && bytes.Contains(r.Header, []byte("Nats-Batch-Id")) &&
			!bytes.Contains(r.Header, []byte("Nats-Batch-Commit"))
		return nil
	}, growing)
}

// records calls do with the records of the open file from the offset on, and advances the offset. An
// incomplete record at the end of a growing file is left for the next call.
func (t *Tail) records(do func(*record) error, growing bool) error {
	if t.file == nil {
		return nil
	}
	if t.buffer == nil {
		t.buffer = make([]byte, tailBuffer)
	}
	for {
		n, err := t.file.ReadAt(t.buffer, t.offset)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		ended := errors.Is(err, io.EOF)
		used, need, err := t.some(t.buffer[:n], do)
		t.offset += int64(used)
		switch {
		case ended && growing && (errors.Is(err, ErrTail) || err == nil && used < n):
			return t.part()
		case err != nil:
			return err
		case ended && used < n:
			return ErrTail // a file that is complete ends in the middle of a record
		case ended:
			t.partAt = -1
			return nil
		case need > len(t.buffer):
			t.buffer = make([]byte, need)
		}
	}
}

// part notes that the record at the offset is incomplete. It returns an error if that lasts.
func (t *Tail) part() error {
	if t.partAt != t.offset {
		t.partAt, t.partSince = t.offset, time.Now()
	}
	if time.Since(t.partSince) > maxPart {
		return ErrTail
	}
	return nil
}

// some calls do with the complete records in b. It returns how many bytes they take, and how many the next
// one takes.
func (t *Tail) some(b []byte, do func(*record) error) (used, need int, err error) {
	for len(b)-used >= recordHead {
		length := recordSize(b[used:])
		if length == 0 || length > maxServerRecord {
			return used, 0, ErrTail
		}
		if len(b)-used < length {
			return used, length, nil
		}
		r, ok := t.decode.record(b[used : used+length])
		if !ok {
			return used, 0, ErrTail
		}
		if r.Sequence != 0 {
			if err := do(&r); err != nil {
				return used, 0, err
			}
		}
		used += length
	}
	return used, recordHead, nil
}
