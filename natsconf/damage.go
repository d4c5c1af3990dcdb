package natsconf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"verifyd/natsconf/storefile"
)

// Damage is something that the embedded store must have and does not.
type Damage struct {
	Stream string `json:"stream"`
	What   string `json:"what"` // for people
	Lost   uint64 `json:"lost"` // messages, at most; 0: it is not known how many
	// when the first was stored, as far as the messages before it show; zero: not known
	From time.Time `json:"from,omitzero"`
	To   time.Time `json:"to,omitzero"`    // and the last
	File string    `json:"file,omitempty"` // empty: no single one
}

func (d Damage) String() string {
	lost := "an unknown number of messages is lost"
	if d.Lost > 0 {
		lost = fmt.Sprintf("up to %d messages are lost", d.Lost)
	}
	where := ""
	if d.File != "" {
		where = " of " + d.File
	}
	return fmt.Sprintf("%s: %s%s; %s, stored %s", d.Stream, d.What, where, lost, between(d.From, d.To))
}

func between(from, to time.Time) string {
	text := func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
	switch {
	case from.IsZero() && to.IsZero():
		return "at an unknown time"
	case from.IsZero():
		return "before " + text(to)
	case to.IsZero():
		return "after " + text(from)
	default:
		return "between " + text(from) + " and " + text(to)
	}
}

// DamageError reports that the embedded store lacks what was acknowledged. It is not served.
type DamageError struct{ Damages []Damage }

func (e *DamageError) Error() string {
	var b strings.Builder
	b.WriteString("the store is damaged and is not served:")
	for _, d := range e.Damages {
		b.WriteString("\n  " + d.String())
	}
	b.WriteString("\nPut back the files if you have them, restore a copy into another data directory (verifyd restore), or run verifyd recover, " +
		"which keeps what is left and ends what cannot be known any more")
	return b.String()
}

// recencyLost is how far back a power cut may take what is not synced with each message: the server syncs it
// every two minutes.
const recencyLost = 10 * time.Minute

// neverDeleted are the streams whose messages leave by age alone, so that a gap is a loss.
var neverDeleted = []string{StreamCompletions, StreamAudit}

// Inspect holds the files of a data directory, whose service may run, against what they must have. It
// changes nothing. Its errors are a *DamageError and those of files that cannot be read.
func Inspect(dataDir string, sync SyncMode) error {
	e := &Embedded{o: EmbeddedOptions{DataDir: dataDir, Sync: sync}}
	_, err := e.inspect()
	return err
}

// ReadWitness returns when the witness of a data directory's store was written. Its error is why nothing
// is known of such a store.
func ReadWitness(dataDir string) (at time.Time, err error) {
	w, err := readWitness(dataDir)
	if err != nil {
		return time.Time{}, err
	}
	return w.At, nil
}

// inspection is what an inspection found, besides damage.
type inspection struct {
	witness *witness // nil: there is none
	streams map[string]storefile.Stream
	minor   []Damage // of streams that may lose it
}

func (e *Embedded) inspect() (*inspection, error) {
	if err := e.unfinishedRecovery(); err != nil {
		return nil, err
	}
	w, err := readWitness(e.o.DataDir) // first, since what is written meanwhile is more
	if err != nil && !errors.Is(err, errNoWitness) {
		return nil, err
	}
	found := &inspection{witness: w, streams: map[string]storefile.Stream{}}
	var damages []Damage
	for _, name := range streamNames() {
		s, err := storefile.Scan(e.streamFolder(name), name)
		if err != nil {
			return nil, err
		}
		found.streams[name] = s
		for _, d := range e.judge(s, w) {
			if e.mayLose(name, d, w) {
				found.minor = append(found.minor, d)
			} else {
				damages = append(damages, d)
			}
		}
	}
	if damages != nil {
		return found, &DamageError{damages}
	}
	return found, nil
}

// mayLose reports whether a loss breaks no promise: of a stream that no promise depends on, or, where the
// operator has chosen to sync in intervals, of what was stored shortly before the process ended without
// closing the store.
func (e *Embedded) mayLose(name string, d Damage, w *witness) bool {
	if slices.Contains(unsynced, name) {
		return true
	}
	return e.o.Sync == SyncInterval && w != nil && !w.Clean && d.From.After(w.At.Add(-recencyLost))
}

// judge returns what a stream lacks.
func (e *Embedded) judge(s storefile.Stream, w *witness) (damages []Damage) {
	m := w.mark(s.Name)
	if m != nil && m.Last > 0 && len(s.Blocks) == 0 {
		return []Damage{{Stream: s.Name, What: "its files are gone", Lost: m.Messages, To: w.At}}
	}
	for _, h := range s.Holes {
		damages = append(damages, Damage{
			Stream: s.Name, What: fmt.Sprintf("%d bytes at offset %d are damaged", h.Bytes, h.Offset),
			File: e.relative(h.File),
			Lost: h.Gap.Count(), From: h.Gap.From, To: h.Gap.To,
		})
	}
	if m != nil && s.Last < m.Last {
		damages = append(damages, Damage{
			Stream: s.Name, What: "its end is missing", Lost: m.Last - s.Last, From: s.LastAt, To: w.At,
		})
	}
	known := uint64(0)
	if m != nil {
		known = m.Deleted
	}
	if slices.Contains(neverDeleted, s.Name) && len(s.Holes) == 0 && s.Missing > known &&
		(m != nil || !s.OwnLives) {
		first, last := s.Gaps[0], s.Gaps[len(s.Gaps)-1]
		damages = append(damages, Damage{
			Stream: s.Name, What: "messages are missing in its midst", Lost: s.Missing - known,
			From: first.From, To: last.To,
		})
	}
	return append(damages, judgeBlocks(s, m, w)...)
}

// judgeBlocks reports a block that is missing before or between others. A block goes when all its messages
// are replaced, deleted or aged out, and the witness hears of it within a second; so what is missing is
// judged by what such a block could have held.
func judgeBlocks(s storefile.Stream, m *mark, w *witness) []Damage {
	if m == nil || len(s.Blocks) == 0 || slices.Contains(neverDeleted, s.Name) && len(m.Blocks) > 0 &&
		s.Blocks[0] == m.Blocks[0] {
		return nil // of those, a gap shows more
	}
	for _, n := range m.Blocks {
		if slices.Contains(s.Blocks, n) || n > s.Blocks[len(s.Blocks)-1] {
			continue
		}
		aged := n < s.Blocks[0] && m.MaxAge > 0 && m.FirstWritten.Before(w.At.Add(agedSlack-m.MaxAge))
		if !aged && (slices.Contains(longKept, s.Name) || s.Records < m.Messages) {
			return []Damage{
				{Stream: s.Name, What: fmt.Sprintf("block %d is missing", n),
					Lost: missing(m.Messages, s.Records), To: w.At},
			}
		}
	}
	return nil
}

// agedSlack covers what touches a block file after its newest message, as the deletion of others in it does.
const agedSlack = time.Hour

// longKept are the streams of which hardly a message is ever replaced, so that a block between others does
// not go by itself.
var longKept = []string{
	StreamCompletions, StreamAudit, StreamSessionKeys, BucketStream(BucketSessions),
	BucketStream(BucketAccounts), BucketStream(BucketKeys),
}

func missing(want, have uint64) uint64 {
	if have >= want {
		return 0
	}
	return want - have
}

func (e *Embedded) relative(path string) string {
	rel, err := filepath.Rel(e.o.DataDir, path)
	if err != nil {
		return path
	}
	return rel
}

// prepare holds the store's files against what they must have, once, and makes them fit for the server.
// Where the server is started anew in this process, what it held before is known.
func (e *Embedded) prepare() error {
	if e.inspected {
		for _, name := range streamNames() {
			if err := storefile.Settle(e.streamFolder(name)); err != nil {
				return err
			}
		}
		return nil
	}
	found, err := e.inspect()
	if _, damaged := errors.AsType[*DamageError](err); err != nil && (!damaged || !e.recovering) {
		return err
	}
	if e.recovering {
		found.witness = begunAnew() // everything is given out again, and what is known to have ended stays so
	}
	if err := e.makeReady(found); err != nil {
		return err
	}
	e.least = map[string]uint64{}
	for name, s := range found.streams {
		if len(s.Blocks) > 0 && !slices.Contains(unsynced, name) {
			e.least[name] = s.Last
		}
	}
	e.counted = found.witness.mark(StreamUsage)
	e.inspected = true
	return nil
}

// remember notes what a server that has stopped held, for its next start.
func (e *Embedded) remember(marks []mark) {
	for _, m := range marks {
		if _, ok := e.least[m.Name]; ok && e.Failure() == nil {
			e.least[m.Name] = m.Last
		}
	}
}

// CheckServed holds what the server has made of the files against what these held. Its error is a
// *DamageError.
func (e *Embedded) CheckServed() error {
	e.mu.Lock()
	ns := e.running
	e.mu.Unlock()
	if ns == nil {
		return fmt.Errorf("embedded NATS server: %w", ErrUnavailable)
	}
	return e.checkServed(ns)
}

func (e *Embedded) checkServed(ns *server.Server) error {
	marks, err := marksOf(ns)
	if err != nil {
		return err
	}
	var damages []Damage
	for _, m := range marks {
		if least, ok := e.least[m.Name]; ok && m.Last < least {
			damages = append(damages, Damage{
				Stream: m.Name, What: "the server has dropped its end", Lost: least - m.Last,
			})
		}
		if c := e.counted; c != nil && m.Name == c.Name && m.First <= c.First && m.Messages < c.Messages {
			damages = append(damages, Damage{
				Stream: m.Name, What: "counters are missing", Lost: c.Messages - m.Messages,
			})
		}
	}
	if damages != nil {
		return &DamageError{damages}
	}
	return nil
}

// makeReady makes a store that is not damaged fit for its server: what is read of it is on the disk, and
// consumers go on from where they are known to have been.
func (e *Embedded) makeReady(found *inspection) error {
	for _, d := range found.minor {
		e.o.Log.Warn().Str("stream", d.Stream).Uint64("lost", d.Lost).Time("from", d.From).Time("to", d.To).
			Msg("messages that no promise depends on are lost: " + d.What)
	}
	for name, s := range found.streams {
		folder := e.streamFolder(name)
		if len(s.Holes) > 0 { // of streams that may lose it
			if err := storefile.Repair(folder, name, e.keepFolder(name)); err != nil {
				return err
			}
		}
		if w := found.witness; w != nil && w.Clean {
			if err := e.checkConsumers(folder, w.mark(name)); err != nil {
				return err
			}
			continue
		}
		if err := e.settle(folder, found.witness.mark(name)); err != nil {
			return err
		}
	}
	if w := found.witness; w != nil && w.Clean {
		w.Clean = false
		return writeWitness(e.o.DataDir, w)
	}
	return nil
}

// settle is for what was not closed. The file with a consumer's position has no checksum, and one that is
// wrong would have outcomes count as delivered: what is behind the last position that is known is given out
// again, and the facts decide.
func (e *Embedded) settle(folder string, m *mark) error {
	if err := storefile.Settle(folder); err != nil {
		return err
	}
	if m == nil {
		return nil
	}
	for _, c := range m.Consumers {
		if err := storefile.SetConsumer(folder, c.Name, c.Position); err != nil {
			return fmt.Errorf("set consumer %s: %w", c.Name, err)
		}
	}
	return nil
}

// checkConsumers sets the positions of consumers whose files are not what the stop left.
func (e *Embedded) checkConsumers(folder string, m *mark) error {
	if m == nil {
		return nil
	}
	for _, c := range m.Consumers {
		digest, err := storefile.ConsumerDigest(folder, c.Name)
		if err != nil {
			return fmt.Errorf("read consumer %s: %w", c.Name, err)
		}
		if digest == c.Digest {
			continue
		}
		e.o.Log.Warn().Str("consumer", c.Name).Uint64("sequence", c.Stream).
			Msg("the file with a consumer's position was changed or damaged: it goes on from where it is known to have been")
		if err := storefile.SetConsumer(folder, c.Name, c.Position); err != nil {
			return fmt.Errorf("set consumer %s: %w", c.Name, err)
		}
	}
	return nil
}

// recoveryFile records, inside the data directory, that a recovery has begun and not ended.
const recoveryFile = "recovery.json"

func (e *Embedded) unfinishedRecovery() error {
	if e.recovering {
		return nil
	}
	_, err := os.Stat(filepath.Join(e.o.DataDir, recoveryFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for a recovery: %w", err)
	}
	return errors.New("a recovery of this store has begun and not ended: run verifyd recover again")
}

// keepFolder is where damaged files of a stream are kept.
func (e *Embedded) keepFolder(name string) string {
	return filepath.Join(e.o.DataDir, "damaged", time.Now().UTC().Format("20060102T150405Z"), name)
}

// InspectFiles reads the records of all streams of a NATS server's store folder, while that server is
// stopped. It changes nothing. Its errors are a *DamageError and those of files that cannot be read.
func InspectFiles(dir string) error {
	var damages []Damage
	streams := 0
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
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
		e := &Embedded{o: EmbeddedOptions{DataDir: dir}}
		damages = append(damages, e.judge(s, nil)...)
		return fs.SkipDir
	})
	switch {
	case err != nil:
		return fmt.Errorf("read the streams of %q: %w", dir, err)
	case streams == 0:
		return fmt.Errorf("there are no streams in %q: name the store_dir of the NATS server", dir)
	case damages != nil:
		return &DamageError{damages}
	}
	return nil
}
