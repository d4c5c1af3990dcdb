package storefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Stream is what the files of a stream hold.
type Stream struct {
	Name   string
	First  uint64 // the lowest sequence of a record; 0: there is none
	Last   uint64 // the highest sequence that the files mention
	LastAt time.Time
	// Records counts the messages in the files, including those that have been replaced.
	Records uint64
	// Missing counts the sequences between First and Last that have no record and are not recorded as
	// deleted.
	Missing uint64
	Gaps    []Gap // where they are
	// OwnLives reports whether messages with TTLs of their own were found.
	OwnLives bool
	Blocks   []uint32 // the numbers of the block files, in order
	// Holes are the damaged places. The end of the last block is none, if it holds no complete record: an
	// interrupted write leaves it so.
	Holes []Hole
}

// Gap is an inclusive range of sequences that have no records, and when the records around it were stored.
type Gap struct {
	First, Last uint64
	From, To    time.Time
}

// Hole is a damaged place of a block file.
type Hole struct {
	File   string
	Offset int
	Bytes  int
	// the sequences that were there, as far as the records around it show; Last is 0 if none follows
	Gap Gap
}

// BlockFolder is where a stream's folder has its block files.
const BlockFolder = "msgs"

// Scan reads all block files of a stream, from its folder. It fails if a file cannot be read.
func Scan(folder, name string) (Stream, error) {
	return ScanSlowly(folder, name, true, func() error { return nil })
}

// ScanSlowly is Scan, and calls pause after each file, whose error ends it. Without gaps, Gaps and Missing
// are left out: streams whose messages are replaced have many.
func ScanSlowly(folder, name string, gaps bool, pause func() error) (Stream, error) {
	s := Stream{Name: name}
	numbers, err := Blocks(folder)
	if err != nil {
		return s, err
	}
	w := &walker{s: &s, gaps: gaps}
	for _, n := range numbers {
		path := BlockPath(folder, n)
		buf, err := os.ReadFile(path) //nolint:gosec // the operator's own store
		if errors.Is(err, fs.ErrNotExist) {
			continue // all of its messages have left the stream since the files were listed
		}
		s.Blocks = append(s.Blocks, n)
		if err != nil {
			return s, fmt.Errorf("read block %d of %s: %w", n, name, err)
		}
		newBlock(name, n, buf).walk(w.take, func(h hole) {
			w.open = append(w.open, Hole{File: path, Offset: h.start, Bytes: h.end - h.start})
		})
		if err := pause(); err != nil {
			return s, err
		}
	}
	w.end()
	return s, nil
}

// BlockPath returns the path of a block file.
func BlockPath(folder string, number uint32) string {
	return filepath.Join(folder, BlockFolder, strconv.FormatUint(uint64(number), 10)+".blk")
}

// Blocks returns the numbers of the block files in a stream's folder, in order; none if there is no folder.
func Blocks(folder string) (numbers []uint32, err error) {
	entries, err := os.ReadDir(filepath.Join(folder, BlockFolder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the blocks: %w", err)
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".blk")
		if n, err := strconv.ParseUint(name, 10, 32); ok && err == nil {
			numbers = append(numbers, uint32(n))
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// walker follows the records of a stream's blocks.
type walker struct {
	s       *Stream
	gaps    bool
	last    uint64   // the highest sequence of a record so far; 0: there was none
	open    []Hole   // holes after which no record has come yet
	deleted []uint64 // sequences recorded as deleted
}

func (w *walker) take(r record, _ []byte) {
	w.s.Last = max(w.s.Last, r.Sequence)
	if !r.deleted && !r.erased {
		w.s.Records++
	}
	if r.deleted {
		if w.gaps {
			w.deleted = append(w.deleted, r.Sequence)
		}
		return
	}
	if r.Sequence <= w.last { // a message that was moved within the file
		return
	}
	at := time.Unix(0, r.Time)
	gap := Gap{First: w.last + 1, Last: r.Sequence - 1, From: w.s.LastAt, To: at}
	for _, h := range w.open {
		h.Gap = gap
		w.s.Holes = append(w.s.Holes, h)
	}
	w.open = nil
	if w.last == 0 {
		w.s.First = r.Sequence
	} else if gap.Last >= gap.First && w.gaps {
		w.s.Gaps = append(w.s.Gaps, gap)
	}
	w.last, w.s.LastAt = r.Sequence, at
	w.s.OwnLives = w.s.OwnLives || r.ownLife()
}

// end classifies the holes that no record followed, and counts what is missing.
func (w *walker) end() {
	if n := len(w.open); n > 0 {
		for _, h := range w.open[:n-1] {
			h.Gap = Gap{First: w.last + 1, From: w.s.LastAt}
			w.s.Holes = append(w.s.Holes, h)
		}
	}
	slices.Sort(w.deleted)
	w.deleted = slices.Compact(w.deleted)
	for _, g := range w.s.Gaps {
		low, _ := slices.BinarySearch(w.deleted, g.First)
		high, _ := slices.BinarySearch(w.deleted, g.Last+1)
		w.s.Missing += g.Last - g.First + 1 - uint64(high-low) //nolint:gosec // a count
	}
}

// Count returns how many sequences a gap has; 0 if its end is not known.
func (g Gap) Count() uint64 {
	if g.Last < g.First {
		return 0
	}
	return g.Last - g.First + 1
}
