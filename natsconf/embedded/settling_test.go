package embedded

import (
	"testing"
	"time"

	"verifyd/natsconf/storefile"
)

// After a power cut the sequences of what it took are used again: they count as on the disk only once that is
// so anew.
func TestWhatACutTookIsNotSettled(t *testing.T) {
	t.Parallel()
	const stream, within = "S", time.Minute
	now := time.Now()
	s := settling{within: within}
	s.resume(&witness{At: now, Streams: []mark{{Name: stream, Settled: 2, Last: 5}}},
		map[string]storefile.Stream{stream: {Last: 3}})
	for _, at := range []struct {
		after       time.Duration
		last, wants uint64
	}{
		{time.Second, 3, 2}, {within, 4, 3}, {within + time.Second, 5, 3}, {2*within + time.Second, 6, 4},
	} {
		marks := []mark{{Name: stream, Last: at.last}}
		s.note(now.Add(at.after), marks)
		if marks[0].Settled != at.wants {
			t.Errorf("after %s: %d are settled, want %d", at.after, marks[0].Settled, at.wants)
		}
	}
}

// A server replaces the block of an empty stream when it starts after a kill. If it is killed again before
// the witness knows that, nothing is missing.
func TestBlockOfAnEmptyStreamIsNotMissed(t *testing.T) {
	t.Parallel()
	const stream = "AUDIT"
	held := storefile.Stream{Name: stream, Blocks: []uint32{2}}
	for messages, damaged := range map[uint64]bool{0: false, 1: true} {
		found := judgeBlocks(held, &mark{Name: stream, Messages: messages, Blocks: []uint32{1}}, &witness{})
		if (len(found) > 0) != damaged {
			t.Errorf("%d messages in block 1: %v", messages, found)
		}
	}
}
