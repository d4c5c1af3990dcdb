package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"verifyd/natsconf/storefile"
	"verifyd/natsconf/topology"
)

// neverDeleted are the streams whose messages leave only by age, so that a gap is a loss.
var neverDeleted = []string{topology.StreamCompletions, topology.StreamAudit}

// Inspect checks the files of a data directory, whose service may run, against what they must have. It
// changes nothing. It also returns, for people, what is damaged and breaks no promise, which the next start
// mends. Its errors are a *DamageError and those of files that cannot be read.
func Inspect(dataDir string, sync SyncMode) (minor []string, err error) {
	f := files{dataDir: dataDir, sync: sync}
	found, err := f.inspect()
	if found == nil {
		return nil, err
	}
	for _, d := range found.minor {
		minor = append(minor, d.String())
	}
	return append(minor, texts(found.flaws)...), err
}

func texts(flaws []flaw) (texts []string) {
	for _, f := range flaws {
		texts = append(texts, f.String())
	}
	return texts
}

// inspection is what an inspection found, apart from damage.
type inspection struct {
	witness *witness // nil: there is none
	streams map[string]storefile.Stream
	minor   []Damage // of streams that may lose it
	flaws   []flaw
}

// lost reports whether a stream has lost something that it may lose.
func (i *inspection) lost(stream string) bool {
	return slices.ContainsFunc(i.minor, func(d Damage) bool { return d.Stream == stream })
}

func (f *files) inspect() (*inspection, error) {
	if err := f.unfinishedRecovery(); err != nil {
		return nil, err
	}
	w, err := readWitness(f.dataDir) // first, since the files only grow meanwhile
	if err != nil && !errors.Is(err, errNoWitness) {
		return nil, err
	}
	found := &inspection{witness: w, streams: map[string]storefile.Stream{}}
	var damages []Damage
	if w != nil {
		damages = slices.Clone(w.Damages)
	}
	for _, name := range topology.StreamNames() {
		s, err := storefile.Scan(f.streamFolder(name), name)
		if err != nil {
			return nil, err
		}
		found.streams[name] = s
		for _, d := range f.judge(s, w) {
			if f.mayLose(name, d, w) {
				found.minor = append(found.minor, d)
			} else {
				damages = append(damages, d)
			}
		}
		// a recovery forgets the positions, and so needs files that can be read
		flaws, err := findFlaws(f.streamFolder(name), name, w.mark(name), !f.recovering)
		if err != nil {
			return nil, err
		}
		found.flaws = append(found.flaws, flaws...)
	}
	if damages != nil {
		return found, &DamageError{Damages: damages}
	}
	return found, nil
}

// findFlaws returns the settings of a stream and its consumers that are damaged, and the positions that
// cannot be read and are not known otherwise: by the stream's mark, if that is used.
func findFlaws(folder, stream string, m *mark, used bool) (flaws []flaw, err error) {
	consumers, err := storefile.Consumers(folder)
	if err != nil {
		return nil, err
	}
	for _, c := range append(consumers, "") {
		intact, err := storefile.SettingsIntact(folder, stream, c)
		if err != nil {
			return nil, fmt.Errorf("read the settings of %s %s: %w", stream, c, err)
		}
		if !intact {
			flaws = append(flaws, flaw{stream: stream, consumer: c, keep: m.maxAge()})
		}
		if c == "" || used && m.knows(c) {
			continue
		}
		if intact, err = storefile.PositionReadable(folder, c); err != nil {
			return nil, fmt.Errorf("read consumer %s: %w", c, err)
		}
		if !intact {
			flaws = append(flaws, flaw{stream: stream, consumer: c, position: true})
		}
	}
	return flaws, nil
}

// mayLose reports whether a loss breaks no promise: no promise depends on the stream, or the operator has
// chosen to sync in intervals and the messages were stored shortly before the process ended without closing
// the store. The message before them may be of any age: a store may have been quiet.
func (f *files) mayLose(name string, d Damage, w *witness) bool {
	switch {
	case slices.Contains(topology.Unsynced, name):
		return true
	case f.sync != SyncInterval, w == nil, w.Clean:
		return false
	case w.Settled.IsZero(): // of an older build
		return d.From.After(w.At.Add(-recencyLost))
	}
	m := w.mark(name)
	return d.First > 0 && (m == nil || d.First > m.Settled)
}

// judge returns what a stream lacks.
func (f *files) judge(s storefile.Stream, w *witness) (damages []Damage) {
	m := w.mark(s.Name)
	if m != nil && m.Last > 0 && len(s.Blocks) == 0 {
		return []Damage{
			{Stream: s.Name, What: "its files are gone", Lost: m.Messages, First: m.First, To: w.At},
		}
	}
	return append(f.judgeRecords(s, w), judgeBlocks(s, m, w)...)
}

// judgeRecords returns what a stream lacks, as far as its records show.
func (f *files) judgeRecords(s storefile.Stream, w *witness) (damages []Damage) {
	m := w.mark(s.Name)
	for _, h := range s.Holes {
		if m != nil && h.Gap.Last > 0 && h.Gap.Last < m.First {
			continue // what was there had left the stream
		}
		damages = append(damages, Damage{
			Stream: s.Name, What: fmt.Sprintf("%d bytes at offset %d are damaged", h.Bytes, h.Offset),
			File: f.relative(h.File),
			Lost: h.Gap.Count(), First: h.Gap.First, From: h.Gap.From, To: h.Gap.To,
		})
	}
	if m != nil && s.Last < m.Last {
		damages = append(damages, Damage{
			Stream: s.Name, What: "its end is missing", Lost: m.Last - s.Last, First: s.Last + 1,
			From: s.LastAt, To: w.At,
		})
	}
	known, gaps := uint64(0), s.Gaps
	if m != nil {
		// the server counts from its first message on, and messages before it may still be in the files
		known = m.Deleted + missingBefore(s, m.First)
		gaps = slices.DeleteFunc(slices.Clone(gaps), func(g storefile.Gap) bool { return g.Last < m.First })
	}
	if slices.Contains(neverDeleted, s.Name) && len(s.Holes) == 0 && s.Missing > known &&
		(m != nil || !s.OwnLives) {
		first, last := gaps[0], gaps[len(gaps)-1]
		damages = append(damages, Damage{
			Stream: s.Name, What: "messages are missing in its midst", Lost: s.Missing - known,
			First: first.First, From: first.From, To: last.To,
		})
	}
	return damages
}

// missingBefore counts the sequences without a record before a sequence.
func missingBefore(s storefile.Stream, first uint64) (n uint64) {
	for _, g := range s.Gaps {
		if g.First < first {
			g.Last = min(g.Last, first-1)
			n += g.Count()
		}
	}
	return n
}

// Examine reads the records of a stream that is being served, and returns what is damaged, or seems so while
// it is being written. After each file it calls pause, whose error ends it.
func (f *files) Examine(stream string, pause func() error) ([]Damage, error) {
	w, err := readWitness(f.dataDir) // first, since the files only grow meanwhile
	if err != nil && !errors.Is(err, errNoWitness) {
		return nil, err
	}
	gaps := slices.Contains(neverDeleted, stream)
	s, err := storefile.ScanSlowly(f.streamFolder(stream), stream, gaps, pause)
	if err != nil {
		return nil, err
	}
	return f.judgeRecords(s, w), nil
}

// judgeBlocks reports a block that is missing before or between others. A block is removed when all its
// messages are replaced, deleted or aged out, and the witness learns of it within a second. So a missing
// block is judged by what it could have held.
func judgeBlocks(s storefile.Stream, m *mark, w *witness) []Damage {
	if m == nil || m.Messages == 0 || len(s.Blocks) == 0 {
		return nil // the server replaces the block of an empty stream
	}
	if slices.Contains(neverDeleted, s.Name) && len(m.Blocks) > 0 && s.Blocks[0] == m.Blocks[0] {
		return nil // for those, a gap shows more
	}
	for _, n := range m.Blocks {
		if slices.Contains(s.Blocks, n) || n > s.Blocks[len(s.Blocks)-1] {
			continue
		}
		aged := n < s.Blocks[0] && m.MaxAge > 0 && m.FirstWritten.Before(w.At.Add(agedSlack-m.MaxAge))
		if !aged && (slices.Contains(longKept, s.Name) || s.Records < m.Messages) {
			return []Damage{
				{Stream: s.Name, What: fmt.Sprintf("block %d is missing", n),
					Lost: m.Messages - min(m.Messages, s.Records), To: w.At},
			}
		}
	}
	return nil
}

// agedSlack covers changes of a block file after its newest message, such as the deletion of other messages
// in it.
const agedSlack = time.Hour

// longKept are the streams whose messages are hardly ever replaced, so that a block between others does not
// disappear by itself.
var longKept = []string{
	topology.StreamCompletions, topology.StreamAudit, topology.StreamSessionKeys,
	topology.BucketStream(topology.BucketSessions),
	topology.BucketStream(topology.BucketAccounts), topology.BucketStream(topology.BucketKeys),
}

func (f *files) relative(path string) string {
	rel, err := filepath.Rel(f.dataDir, path)
	if err != nil {
		return path
	}
	return rel
}

// recoveryFile records, inside the data directory, that a recovery has begun and not ended.
const recoveryFile = "recovery.json"

func (f *files) unfinishedRecovery() error {
	if f.recovering {
		return nil
	}
	_, err := os.Stat(filepath.Join(f.dataDir, recoveryFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for a recovery: %w", err)
	}
	return errors.New("a recovery of this store has begun and not ended: run verifyd recover again")
}

// keptFolder holds, inside the data directory, what was damaged.
const keptFolder = "damaged"

// keepFolder is where damaged files of a stream are kept.
func (f *files) keepFolder(name string) string {
	return filepath.Join(f.dataDir, keptFolder, time.Now().UTC().Format("20060102T150405Z"), name)
}

// InspectFiles reads the records of all streams of a NATS server's store folder, while that server is
// stopped. It changes nothing. It also returns, for people, which settings are damaged. Its errors are a
// *DamageError and those of files that cannot be read.
func InspectFiles(dir string) (minor []string, err error) {
	var damages []Damage
	streams := 0
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() || entry.Name() != storefile.BlockFolder ||
			filepath.Base(filepath.Dir(filepath.Dir(path))) != "streams" {
			return err
		}
		streams++
		folder := filepath.Dir(path)
		s, err := storefile.Scan(folder, filepath.Base(folder))
		if err != nil {
			return err
		}
		f := files{dataDir: dir}
		damages = append(damages, f.judge(s, nil)...)
		flaws, err := findFlaws(folder, s.Name, nil, false)
		if err != nil {
			return err
		}
		minor = append(minor, texts(flaws)...)
		return fs.SkipDir
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the streams of %q: %w", dir, err)
	case streams == 0:
		return nil, fmt.Errorf("there are no streams in %q: name the store_dir of the NATS server", dir)
	case damages != nil:
		return minor, &DamageError{Damages: damages}
	}
	return minor, nil
}
