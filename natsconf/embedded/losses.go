package embedded

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"verifyd/natsconf/storefile"
	"verifyd/natsconf/topology"
	"verifyd/natsconf/wait"
)

// losses are the damages that were seen while the store was served. It is read with each request.
type losses struct {
	files *files
	latch *latch
	mu    sync.Mutex // of those that add one
	all   atomic.Pointer[[]Failure]
}

// add records a damage of a stream, and returns nil if one is known already: the first is the cause of
// others.
func (l *losses) add(d Damage) *Failure {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.of(d.Stream) != nil
	if known && (d.Kept == "" || slices.ContainsFunc(l.lasting(), func(other Damage) bool {
		return other.Kept == d.Kept
	})) {
		return nil
	}
	f := Failure{
		Stream: d.Stream, At: time.Now(), Cause: &DamageError{Damages: []Damage{d}, served: true},
	}
	all := append(slices.Clone(l.Damages()), f)
	l.all.Store(&all)
	if known { // for its copy of a file
		return nil
	}
	return &f
}

func (l *losses) of(stream string) *Failure {
	all := l.Damages()
	for i := range all {
		if all[i].Stream == stream {
			return &all[i]
		}
	}
	return nil
}

// lasting returns the damages that the next start must know of: it may not find them in the files, from which
// the server has removed what was damaged.
func (l *losses) lasting() (damages []Damage) {
	for _, f := range l.Damages() {
		d, _ := errors.AsType[*DamageError](f.Cause)
		if !slices.Contains(topology.Unsynced, f.Stream) {
			damages = append(damages, d.Damages...)
		}
	}
	return damages
}

// NoteDamage records that a stream has lost what it held, or holds what cannot be read, while it is served.
// Unless the stream is one of aside, the store has failed.
func (l *losses) NoteDamage(d Damage) {
	f := l.add(d)
	switch {
	case f == nil:
	case slices.Contains(aside, d.Stream):
		l.files.log.Error().Str("stream", d.Stream).Msg(f.Error())
	default:
		l.latch.note(f) // Serve logs it
	}
}

// Damages returns what has been lost, or cannot be read, since the store is served.
func (l *losses) Damages() []Failure {
	if all := l.all.Load(); all != nil {
		return *all
	}
	return nil
}

// Damaged returns why a stream must not be used although the others may be, or nil. From one that may lose
// its end anyway, what is left is read.
func (l *losses) Damaged(stream string) error {
	if f := l.of(stream); f != nil && !slices.Contains(topology.Unsynced, stream) {
		return f
	}
	return nil
}

// WentBack compares a sequence of a stream that was seen with what the server holds, and notes a loss.
func (e *Server) WentBack(stream string, seen uint64) {
	ns, err := e.current()
	if err != nil {
		return
	}
	marks, err := marksOf(ns)
	if err != nil {
		return
	}
	for _, m := range marks {
		if m.Name == stream {
			e.noteLoss(seen, m)
		}
	}
}

// noteLoss notes it if a stream does not hold a sequence any more that was seen in it: sequences never go
// back.
func (l *losses) noteLoss(seen uint64, now mark) {
	if now.Last < seen && !slices.Contains(topology.Unsynced, now.Name) { // those may lose their end
		l.NoteDamage(Damage{
			Stream: now.Name, What: whatDropped, Lost: seen - now.Last, First: now.Last + 1,
			To: time.Now().UTC(),
		})
	}
}

const whatDropped = "the server has dropped its end"

// recordError begins the line that the server logs when it finds a record whose length cannot be, before it
// cuts the block off there. What followed is lost; nothing else reports it.
const recordError = "indexCacheBuf corrupt record state"

// noteRecordError finds a damaged block in a line of the server's log, and keeps a copy of the block.
func (l *losses) noteRecordError(format string, args []any) {
	stream, rest, ok := ofFilestore(format)
	if !ok || !strings.HasPrefix(rest, recordError) {
		return
	}
	d := Damage{
		Stream: stream, What: "the server has found a damaged record, and cut its block off there",
		To: time.Now().UTC(),
	}
	if len(args) > 0 {
		path, ok := args[0].(string)
		// what is stored in a stream that goes on being written to does not fit an older block
		if ok && !slices.Contains(aside, stream) {
			d.File = l.files.relative(path)
			kept := filepath.Join(l.files.keepFolder(stream), filepath.Base(path))
			if err := storefile.Copy(path, kept); err == nil {
				d.Kept = l.files.relative(kept)
			} else {
				l.files.log.Error().Err(err).Msg("a damaged file could not be copied before it is cut off")
			}
		}
	}
	l.NoteDamage(d)
}

// saveSoon saves as soon as the disk accepts it, unless ctx ends before.
func (l *losses) saveSoon(ctx context.Context) {
	for l.save() != nil {
		if wait.Pause(ctx, saveAgain) != nil {
			return
		}
	}
}

// saveAgain is the pause after a disk that is full, for instance, did not accept the damages.
const saveAgain = time.Second

// save adds the damages to the witness, if there are any: the next start may not find them in the files.
func (l *losses) save() error {
	lost := l.lasting()
	if len(lost) == 0 {
		return nil
	}
	w, err := readWitness(l.files.dataDir)
	if _, unread := errors.AsType[*fs.PathError](err); unread {
		return err
	}
	if err != nil {
		w = &witness{Version: witnessVersion, At: time.Now().UTC()}
	}
	w.Clean, w.Damages = false, lost
	return l.files.writeWitness(w)
}

// compare notes what streams have lost since they held something else. A sequence is never used again, unless
// the message that had it is lost.
func (l *losses) compare(held, now []mark) {
	w := witness{Streams: held}
	for _, m := range now {
		before := w.mark(m.Name)
		switch {
		case before == nil || !before.created.Equal(m.created):
		case m.Last == before.Last && m.lastAt.After(before.lastAt):
			l.noteLoss(before.Last+1, m)
		default:
			l.noteLoss(before.Last, m)
		}
	}
}
