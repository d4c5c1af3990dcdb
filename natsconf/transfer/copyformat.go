package transfer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/storefile"
)

// The format of a copy, whose versions are those of a backup. A folder holds
//
//	verifyd-copy         what the copy is: one line of JSON, a Header; then a box with a copyState. It is
//	                     replaced as a whole.
//	verifyd-copy.GEN     the messages of one generation: frames, to which is only appended.
//	verifyd-copy.lock    held by the service that writes.
//
// A frame is four bytes of length, big-endian, and a box, which belongs to the generation and the frame's
// number: one that is changed, missing, duplicated or from another generation does not open. A frame holds
// entries, a kind and its fields: 's' names the stream whose messages follow, and how long it keeps them; 'm'
// is a message; 'c' ends a pass: everything up to there is a state that the store was in. The copyState names
// how many bytes of the file count; the bytes after them were under way when the service ended.
const (
	copyFormat = "verifyd copy"
	copyUse    = "copy" // of the box

	// frameBytes is how much is sealed at once; maxFrame bounds what a reader accepts as a frame: that, a
	// message of the largest size that a server takes, and room to spare.
	frameBytes = 32 << 10
	maxFrame   = 4 << 20
)

const (
	entryStream  = 's'
	entryMessage = 'm'
	entryCommit  = 'c'
)

// frameOwner names a frame.
func frameOwner(generation string, number int) string {
	return fmt.Sprintf("%s/%d", generation, number)
}

// frameWriter gathers entries and writes them as frames.
type frameWriter struct {
	w          io.Writer
	box        *secretbox.Box
	generation string
	number     int    // of the next frame
	written    int64  // bytes
	messages   uint64 // since the last commit

	buffer []byte
	stream string // whose messages come now; empty: none were begun in this frame
}

// message adds a message of a stream that keeps its messages for the given time (0: without end).
func (f *frameWriter) message(stream string, life time.Duration, m *storefile.Message) error {
	if f.stream != stream {
		f.buffer = appendText(append(f.buffer, entryStream), stream)
		f.buffer = binary.AppendUvarint(f.buffer, uint64(life)) //nolint:gosec // never negative
		f.stream = stream
	}
	f.buffer = binary.AppendUvarint(append(f.buffer, entryMessage), m.Sequence)
	f.buffer = binary.AppendVarint(f.buffer, m.Time)
	f.buffer = appendText(f.buffer, m.Subject)
	f.buffer = appendText(f.buffer, m.Header)
	f.buffer = appendText(f.buffer, m.Data)
	f.messages++
	if len(f.buffer) < frameBytes {
		return nil
	}
	return f.flush()
}

// commit ends a pass: the store was like this at an instant.
func (f *frameWriter) commit(at time.Time) error {
	f.buffer = binary.AppendVarint(append(f.buffer, entryCommit), at.UnixNano())
	f.buffer = binary.AppendUvarint(f.buffer, f.messages)
	f.messages = 0
	return f.flush()
}

func (f *frameWriter) flush() error {
	box := f.box.Seal(f.buffer, frameOwner(f.generation, f.number))
	f.buffer, f.stream = f.buffer[:0], ""
	if err := writeBox(f.w, box); err != nil {
		return err
	}
	f.number++
	f.written += int64(4 + len(box))
	return nil
}

func appendText[T string | []byte](b []byte, text T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// DamagedCopyError reports where a copy cannot be read.
type DamagedCopyError struct {
	File  string
	At    int64     // byte
	Of    int64     // bytes that there should be
	Until time.Time // the instant of the last whole state before it; zero: there is none
}

func (e *DamagedCopyError) Error() string {
	before := "nothing whole is before it"
	if !e.Until.IsZero() {
		before = "what was copied until " + e.Until.UTC().Format(time.RFC3339) + " is whole before it"
	}
	return fmt.Sprintf("the copy is damaged: %s was altered or cut short at byte %d of %d; %s", e.File, e.At,
		e.Of, before)
}

// Is makes it an ErrDamaged.
func (e *DamagedCopyError) Is(target error) bool { return target == ErrDamaged }

// copyVisitor receives the content of a copy, in the order in which it was written.
type copyVisitor struct {
	message func(stream string, life time.Duration, m *storefile.Message) error
	commit  func(at time.Time)
}

// errEntries is returned for entries that do not follow the format, though they were sealed.
var errEntries = errors.New("entries that do not follow the format")

// readFrames reads the frames of a generation, size bytes of them. Its errors are a *DamagedCopyError, r's,
// and the visitor's.
func readFrames(r io.Reader, name string, size int64, box *secretbox.Box, generation string,
	v copyVisitor) error {
	e := entryReader{visitor: v}
	var at int64
	for number := 0; at < size; number++ {
		plain, n, err := readFrame(r, size-at, box, frameOwner(generation, number))
		if err == nil {
			err = e.take(plain)
		}
		if errors.Is(err, ErrDamaged) || errors.Is(err, errEntries) {
			return &DamagedCopyError{File: name, At: at, Of: size, Until: e.until}
		}
		if err != nil {
			return err
		}
		at += n
	}
	if e.messages != 0 || e.until.IsZero() {
		// it does not end with a whole state
		return &DamagedCopyError{File: name, At: at, Of: size, Until: e.until}
	}
	return nil
}

// readFrame reads a frame of at most left bytes. Its errors are ErrDamaged and r's.
func readFrame(r io.Reader, left int64, box *secretbox.Box, owner string) (plain []byte, n int64, err error) {
	sealed, err := readBox(r, min(maxFrame, left-4))
	if err != nil {
		return nil, 0, err
	}
	if plain, err = box.Open(sealed, owner); err != nil {
		return nil, 0, ErrDamaged
	}
	return plain, int64(4 + len(sealed)), nil
}

// entryReader follows entries.
type entryReader struct {
	visitor  copyVisitor
	stream   string
	life     time.Duration
	messages uint64 // since the last commit
	until    time.Time
}

// take reads the entries of a frame. Its errors are errEntries and the visitor's.
func (e *entryReader) take(plain []byte) error {
	f := fields{plain}
	e.stream = ""
	for len(f.b) > 0 {
		if err := e.entry(&f); err != nil {
			return err
		}
	}
	return nil
}

func (e *entryReader) entry(f *fields) error {
	kind := f.b[0]
	f.b = f.b[1:]
	switch kind {
	case entryStream:
		e.stream, e.life = string(f.text()), time.Duration(f.number()) //nolint:gosec // as it was written
	case entryMessage:
		m := storefile.Message{
			Sequence: f.number(), Time: f.signed(), Subject: f.text(), Header: f.text(), Data: f.text(),
		}
		if e.messages++; f.b != nil && e.stream != "" && e.visitor.message != nil {
			return e.visitor.message(e.stream, e.life, &m)
		}
	case entryCommit:
		at, messages := time.Unix(0, f.signed()), f.number()
		if messages != e.messages {
			return errEntries
		}
		e.messages, e.until = 0, at
		if e.visitor.commit != nil {
			e.visitor.commit(at)
		}
	default:
		return errEntries
	}
	if f.b == nil {
		return errEntries
	}
	return nil
}

// fields are read one after another. If one is not whole, b is nil from then on.
type fields struct{ b []byte }

func (f *fields) number() uint64 {
	n, used := binary.Uvarint(f.b)
	f.skip(used)
	return n
}

func (f *fields) signed() int64 {
	n, used := binary.Varint(f.b)
	f.skip(used)
	return n
}

func (f *fields) skip(used int) {
	if used <= 0 {
		f.b = nil
		return
	}
	f.b = f.b[used:]
}

func (f *fields) text() []byte {
	n := f.number()
	if f.b == nil || n > uint64(len(f.b)) {
		f.b = nil
		return nil
	}
	text := f.b[:n:n]
	f.b = f.b[n:]
	return text
}

// storedItem turns an item back into the message that it was read from, with its origin.
func storedItem(it Item) *storefile.Message {
	h := nats.Header{}
	maps.Copy(h, it.Header)
	it.Origin.Put(h)
	return &storefile.Message{
		Sequence: it.Origin.Sequence, Time: it.Origin.Stored.UnixNano(), Subject: []byte(it.Subject),
		Header: headerText(h), Data: it.Data,
	}
}

// headerText writes a header as NATS does.
func headerText(h nats.Header) []byte {
	var b strings.Builder
	b.WriteString("NATS/1.0\r\n")
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, v := range h[name] {
			b.WriteString(name + ": " + v + "\r\n")
		}
	}
	b.WriteString("\r\n")
	return []byte(b.String())
}

// itemOfStored reads a message that was copied.
func itemOfStored(life time.Duration, m *storefile.Message) (Item, error) {
	var h nats.Header
	if len(m.Header) > 0 {
		var err error
		if h, err = nats.DecodeHeadersMsg(m.Header); err != nil {
			return Item{}, fmt.Errorf("the header of a message on %s: %w", m.Subject, err)
		}
	}
	return itemOf(life, string(m.Subject), h, slices.Clone(m.Data), m.Sequence, time.Unix(0, m.Time))
}
