package embedded

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"verifyd/natsconf/storefile"
	"verifyd/natsconf/topology"
)

// A gap, or a damaged place, before a stream's first message is no damage: a repair has left it, or what was
// there has expired.
func TestWhatHasLeftAStreamIsNotMissed(t *testing.T) {
	t.Parallel()
	f := &files{dataDir: t.TempDir()}
	for first, want := range map[uint64]int{400: 1, 500: 1, 501: 0, 600: 0} {
		w := &witness{Streams: []mark{{Name: topology.StreamCompletions, First: first, Last: 700}}}
		gap := storefile.Gap{First: 500, Last: 500}
		missing := storefile.Stream{
			Name: topology.StreamCompletions, First: 1, Last: 700, Missing: 1, Gaps: []storefile.Gap{gap},
		}
		if d := f.judgeRecords(missing, w); len(d) != want {
			t.Errorf("a gap at 500, and the first message is %d: %v", first, d)
		}
		missing.Gaps, missing.Missing = append(missing.Gaps, storefile.Gap{First: 650, Last: 650}), 2
		if d := f.judgeRecords(missing, w); len(d) != 1 || want == 0 && d[0].First != 650 {
			t.Errorf("gaps at 500 and 650, and the first message is %d: %v", first, d)
		}
		damaged := storefile.Stream{
			Name: topology.StreamCompletions, First: 1, Last: 700, Holes: []storefile.Hole{{Gap: gap}},
		}
		if d := f.judgeRecords(damaged, w); len(d) != want {
			t.Errorf("a damaged place at 500, and the first message is %d: %v", first, d)
		}
	}
}

// Each copy of a file is known, and a failure that lasts is not hidden by a full disk.
func TestDamagesThatFollow(t *testing.T) {
	t.Parallel()
	l := &losses{files: &files{log: zerolog.Nop()}, latch: newLatch()}
	l.latch.note(&Failure{Stream: "any", Cause: syscall.ENOSPC})
	for _, d := range []Damage{
		{Stream: topology.StreamCompletions, File: "1.blk"},
		{Stream: topology.StreamCompletions, File: "1.blk", Kept: "kept/1.blk"},
		{Stream: topology.StreamCompletions, File: "2.blk", Kept: "kept/2.blk"},
		{Stream: topology.StreamCompletions, File: "2.blk", Kept: "kept/2.blk"},
		{Stream: topology.StreamCompletions, File: "3.blk"},
	} {
		l.NoteDamage(d)
	}
	if all := l.lasting(); len(all) != 3 {
		t.Errorf("known are %v", all)
	}
	failure, _ := l.latch.get()
	if damage, ok := errors.AsType[*DamageError](failure.Cause); !ok || damage.Damages[0].File != "1.blk" {
		t.Errorf("the failure is %v", failure)
	}
	l.noteLoss(7, mark{Name: topology.StreamEvents, Last: 6})
	if d := l.of(topology.StreamEvents); d != nil {
		t.Errorf("the end of a stream that may lose it: %v", d)
	}
}

// That the store has failed is told before the witness ends, which may hang on the disk that has failed.
func TestFailureIsToldFirst(t *testing.T) {
	t.Parallel()
	e := &Server{gone: make(chan struct{}), latch: newLatch()}
	e.dataDir, e.log = t.TempDir(), zerolog.Nop()
	e.losses.files, e.losses.latch = &e.files, e.latch
	e.latch.note(&Failure{Stream: "any", Cause: syscall.EIO})
	told := false
	abandon(e, func() {
		select {
		case <-e.Abandoned():
			told = true
		default:
		}
	})
	if !told {
		t.Error("the end of the witness comes first")
	}
}

// Damage that a disk does not accept is recorded as soon as it does, not only at the process's end: one that
// is killed has none.
func TestDamageIsRecordedWhenTheDiskAcceptsIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	full := filepath.Join(dir, WitnessFile+".new") // a folder, where the next witness is written
	if err := os.Mkdir(full, 0o700); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		e := &Server{gone: make(chan struct{}), latch: newLatch()}
		e.dataDir, e.log = dir, zerolog.Nop()
		e.losses.files, e.losses.latch = &e.files, e.latch
		e.NoteDamage(Damage{Stream: topology.StreamCompletions, What: "damaged"})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- e.Serve(ctx) }()
		time.Sleep(time.Minute) // of the bubble
		synctest.Wait()
		if err := os.Remove(full); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * saveAgain) // of the bubble
		synctest.Wait()
		if w, err := readWitness(dir); err != nil || len(w.Damages) != 1 {
			t.Errorf("recorded: %+v, %v", w, err)
		}
		cancel()
		<-done
	})
}
