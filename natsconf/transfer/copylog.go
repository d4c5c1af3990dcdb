package transfer

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"maps"
	"os"
	"time"

	"verifyd/natsconf"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/storefile"
	"verifyd/natsconf/wait"
)

const (
	// A new generation reads the whole store through the server. It pauses after each page, this many times
	// as long as the page took. It costs a fortieth of two processors, and a quarter of one if there is no
	// copy yet.
	buildPause      = 19
	buildPauseFirst = 3
)

// copyLog is a generation that is written.
type copyLog struct {
	file   *os.File
	frames *frameWriter
	assets []Asset
	tails  map[string]*storefile.Tail
	lives  map[string]time.Duration
	state  copyState // but for what frames counts
	// without is the sequence of the newest note of a removal when the generation was begun: what it is about
	// is not in there.
	without uint64
}

// openLog goes on with a generation. It truncates the bytes after those that count. Its errors are
// ErrDamaged, and those of the filesystem and the store.
func (r *copyRun) openLog(s copyState) (*copyLog, error) {
	file, err := os.OpenFile(r.folder.path(s.Generation), os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && info.Size() < s.Bytes {
		err = &DamagedCopyError{File: file.Name(), At: info.Size(), Of: s.Bytes}
	}
	if err == nil {
		err = file.Truncate(s.Bytes)
	}
	if err == nil {
		_, err = file.Seek(s.Bytes, io.SeekStart)
	}
	l := &copyLog{file: file, assets: r.c.Assets, state: s}
	l.frames = &frameWriter{
		w: file, box: r.folder.box, generation: s.Generation, number: s.Frames, written: s.Bytes,
	}
	if err == nil {
		err = l.follow(context.Background(), r.c)
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// follow makes the readers that go on from where the generation is.
func (l *copyLog) follow(ctx context.Context, c CopierConfig) error {
	l.tails, l.lives = map[string]*storefile.Tail{}, map[string]time.Duration{}
	for _, a := range l.assets {
		life, err := c.Conn.KeptFor(ctx, a.Stream)
		if err != nil {
			return err
		}
		l.lives[a.Stream] = life
		l.tails[a.Stream] = storefile.NewTail(embedded.StreamFolder(c.DataDir, a.Stream), a.Stream,
			l.state.At[a.Stream].Sequence)
	}
	return nil
}

// newLog makes a generation with everything that is in the store.
func (r *copyRun) newLog(ctx context.Context, first bool) (_ *copyLog, err error) {
	generation := rand.Text()
	file, err := os.OpenFile(r.folder.path(generation), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	l := &copyLog{file: file, assets: r.c.Assets, state: copyState{
		Generation: generation, Began: time.Now(), At: map[string]copyMark{},
	}}
	l.frames = &frameWriter{w: file, box: r.folder.box, generation: generation}
	defer func() {
		if err != nil {
			l.drop()
		}
	}()
	note, err := r.newestRemoval(ctx) // first: what is removed from here on may be in this generation
	if err != nil {
		return nil, err
	}
	if note != nil {
		l.without = note.Sequence
	}
	skip, err := r.c.Skip(ctx)
	if err != nil {
		return nil, err
	}
	pause := buildPause
	if first {
		pause = buildPauseFirst
	}
	for _, a := range l.assets {
		if err := l.everything(ctx, r.c.Conn, a, skip, pause); err != nil {
			return nil, err
		}
	}
	if err := l.frames.flush(); err != nil {
		return nil, err
	}
	if err := l.file.Sync(); err != nil { // all at once with the first pass would hold that up
		return nil, err
	}
	l.state.First = l.frames.written
	return l, l.follow(ctx, r.c)
}

// everything brings all messages of a stream.
func (l *copyLog) everything(ctx context.Context, c *natsconf.Conn, a Asset, skip Skip, pause int) error {
	_, last, err := c.Bounds(ctx, a.Stream)
	if err != nil {
		return err
	}
	mark := copyMark{Sequence: last}
	if m, err := c.Next(ctx, a.Stream, ">", last); err == nil && m.Sequence == last {
		mark.Time = m.Time.UnixNano()
	}
	began := time.Now()
	err = readTo(ctx, c, a, skip, 1, last, began, func(items []Item) error {
		for _, it := range items {
			if err := l.frames.message(a.Stream, 0, storedItem(it)); err != nil {
				return err
			}
		}
		over := wait.Pause(ctx, time.Duration(pause)*time.Since(began))
		began = time.Now()
		return over
	})
	l.state.At[a.Stream] = mark
	return err
}

// pass brings what is new in each stream, in their order, and returns the state that is on the disk then. It
// calls seen with the subject of each note.
func (l *copyLog) pass(at time.Time, seen func(subject string)) (copyState, error) {
	for _, a := range l.assets {
		tail := l.tails[a.Stream]
		mark := l.state.At[a.Stream]
		err := tail.Read(func(m *storefile.Message) error {
			mark = copyMark{m.Sequence, m.Time}
			if a.Stream == noted {
				seen(string(m.Subject))
			}
			return l.frames.message(a.Stream, l.lives[a.Stream], m)
		})
		if err != nil {
			return copyState{}, err
		}
		l.state.At[a.Stream] = mark
		l.state.Missed = tail.Missed() && a.replaces() || l.state.Missed
	}
	if l.frames.messages > 0 || l.frames.written == l.state.First {
		if err := l.frames.commit(at); err != nil {
			return copyState{}, err
		}
		if err := l.file.Sync(); err != nil {
			return copyState{}, fmt.Errorf("sync the copy: %w", err)
		}
	}
	s := l.state
	s.Bytes, s.Frames, s.At = l.frames.written, l.frames.number, maps.Clone(l.state.At)
	return s, nil
}

func (l *copyLog) close() {
	for _, t := range l.tails {
		t.Close()
	}
	_ = l.file.Close()
}

// drop removes a generation that did not come to count.
func (l *copyLog) drop() {
	l.close()
	_ = os.Remove(l.file.Name())
}
