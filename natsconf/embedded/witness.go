package embedded

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"verifyd/natsconf"
	"verifyd/natsconf/storefile"
	"verifyd/natsconf/topology"
)

const (
	// WitnessFile holds, inside the data directory, what the store next to it must have.
	WitnessFile = "witness.json"
	// witnessEvery is how often the store is examined. The state that one look saw is written at the next,
	// when all of it is on the disk or the store has failed, so that the file is less than a second behind.
	witnessEvery   = 400 * time.Millisecond
	witnessVersion = 1
	// recencyLost is how far back from the last writes a power cut may remove messages that are not synced
	// one by one: the server syncs them every two minutes.
	recencyLost = 10 * time.Minute
)

// witness is what the embedded store held at an instant. It is kept next to the store, so that a start
// notices what has gone missing there.
type witness struct {
	Version int       `json:"v"`
	At      time.Time `json:"at"`
	Clean   bool      `json:"clean"` // the store was closed then, and not opened since
	// Settled is the instant before which what was stored is on the disk, also with SyncInterval; zero: an
	// older build wrote it.
	Settled time.Time `json:"settled,omitzero"`
	Streams []mark    `json:"streams"`
	// Damages were seen while the store was served, and nothing was recovered since.
	Damages []Damage `json:"damages,omitempty"`
}

// mark is what a stream held.
type mark struct {
	Name     string        `json:"name"`
	First    uint64        `json:"first"`
	Last     uint64        `json:"last"`
	Messages uint64        `json:"messages"`
	Settled  uint64        `json:"settled,omitempty"` // the last sequence at that instant
	Deleted  uint64        `json:"deleted,omitempty"` // of the sequences between First and Last
	Blocks   []uint32      `json:"blocks,omitempty"`
	MaxAge   time.Duration `json:"max_age,omitempty"`
	// FirstWritten is when the file of the first block was last written.
	FirstWritten time.Time      `json:"first_written,omitzero"`
	Consumers    []consumerMark `json:"consumers,omitempty"`

	// when the stream was made, and its last message stored; not in the file
	created, lastAt time.Time
}

// consumerMark is the position of a durable consumer.
type consumerMark struct {
	Name string `json:"name"`
	storefile.Position
	Digest string `json:"digest,omitempty"` // of its file, after a clean stop
}

func (w *witness) mark(stream string) *mark {
	if w == nil {
		return nil
	}
	for i := range w.Streams {
		if w.Streams[i].Name == stream {
			return &w.Streams[i]
		}
	}
	return nil
}

// maxAge returns how long the stream kept its messages; 0 if that is not known.
func (m *mark) maxAge() time.Duration {
	if m == nil {
		return 0
	}
	return m.MaxAge
}

// knows reports whether the position of a consumer is known.
func (m *mark) knows(consumer string) bool {
	is := func(c consumerMark) bool { return c.Name == consumer }
	return m != nil && slices.ContainsFunc(m.Consumers, is)
}

// settling remembers how far the streams were, for as long as it may take until that is on the disk.
type settling struct {
	within  time.Duration // recencyLost when zero
	samples []sample      // the oldest first
}

// sample is the last sequence of each stream at an instant.
type sample struct {
	at   time.Time
	last map[string]uint64
}

// resume begins with what the witness of an earlier process knew, as far as the files still hold it: the
// sequences of what was lost are used again.
func (s *settling) resume(w *witness, held map[string]storefile.Stream) {
	if w == nil {
		return
	}
	settled, last := map[string]uint64{}, map[string]uint64{}
	for _, m := range w.Streams {
		end := held[m.Name].Last
		settled[m.Name], last[m.Name] = min(m.Settled, end), min(m.Last, end)
	}
	s.samples = []sample{{time.Time{}, settled}, {w.At, last}}
}

// note takes what the streams hold now, and sets which of it is on the disk: what they held at the instant
// that it returns.
func (s *settling) note(now time.Time, marks []mark) (settled time.Time) {
	within := cmp.Or(s.within, recencyLost)
	if n := len(s.samples); n == 0 || now.Sub(s.samples[n-1].at) >= within/10 {
		last := map[string]uint64{}
		for _, m := range marks {
			last[m.Name] = m.Last
		}
		s.samples = append(s.samples, sample{now, last})
	}
	settled = now.Add(-within)
	for len(s.samples) > 1 && !s.samples[1].at.After(settled) {
		s.samples = s.samples[1:]
	}
	for i := range marks {
		if !s.samples[0].at.After(settled) {
			marks[i].Settled = s.samples[0].last[marks[i].Name]
		}
	}
	return settled
}

// initialWitness returns a witness with only the durable consumers, each at its stream's beginning.
func initialWitness() *witness {
	anew := &witness{Version: witnessVersion}
	for _, s := range topology.DispatcherConsumers() {
		anew.Streams = append(anew.Streams, mark{
			Name: s.Stream, Consumers: []consumerMark{{Name: s.Config.Durable}},
		})
	}
	return anew
}

// beginAnew sets the consumers of deliveries to the beginnings of their streams.
func (w *witness) beginAnew() {
	for _, s := range initialWitness().Streams {
		if m := w.mark(s.Name); m != nil {
			m.Consumers = s.Consumers
		}
	}
}

// errNoWitness reports that it is not known what the store must have, as for one that an older build has
// served.
var errNoWitness = errors.New("there is no witness of the store")

// readWitness reads the file of a data directory. Its errors are errNoWitness, also if the file is damaged,
// and the file system's.
func readWitness(dataDir string) (*witness, error) {
	b, err := os.ReadFile(filepath.Join(dataDir, WitnessFile)) //nolint:gosec // the operator's own data directory
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoWitness
	}
	if err != nil {
		return nil, fmt.Errorf("read the store's witness: %w", err)
	}
	sum, text, _ := bytes.Cut(b, []byte("\n"))
	if string(sum) != digest(text) {
		return nil, fmt.Errorf("%w: %s is damaged", errNoWitness, WitnessFile)
	}
	var w witness
	if err := natsconf.DecodeRecord(text, &w, &w.Version, witnessVersion); err != nil {
		return nil, fmt.Errorf("the store's witness: %w", err)
	}
	return &w, nil
}

// writeWitness replaces the file. The running server's goroutine and the end of a recovery may do so at once.
func (f *files) writeWitness(w *witness) error {
	text, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("encode the store's witness: %w", err)
	}
	b := append([]byte(digest(text)+"\n"), text...)
	f.witnessing.Lock()
	defer f.witnessing.Unlock()
	if err := storefile.Replace(filepath.Join(f.dataDir, WitnessFile), b); err != nil {
		return fmt.Errorf("write the store's witness: %w", err)
	}
	return nil
}

func digest(text []byte) string { return fmt.Sprintf("%x", sha256.Sum256(text)) }

// marksOf returns what the server holds now.
func marksOf(ns *server.Server) ([]mark, error) {
	info, err := ns.Jsz(&server.JSzOptions{Accounts: true, Streams: true, Consumer: true, Config: true})
	if err != nil {
		return nil, fmt.Errorf("ask the server for its streams: %w", err)
	}
	var marks []mark
	for _, a := range info.AccountDetails {
		for _, s := range a.Streams {
			m := mark{
				Name: s.Name, First: s.State.FirstSeq, Last: s.State.LastSeq, Messages: s.State.Msgs,
				Deleted: uint64(s.State.NumDeleted), //nolint:gosec // a count
				created: s.Created, lastAt: s.State.LastTime,
			}
			if s.Config != nil {
				m.MaxAge = s.Config.MaxAge
			}
			for _, c := range s.Consumer {
				if c.Config != nil && c.Config.Durable != "" {
					m.Consumers = append(m.Consumers, consumerMark{
						Name: c.Name, Position: storefile.Position{
							Stream: c.AckFloor.Stream, Consumer: c.AckFloor.Consumer,
						},
					})
				}
			}
			marks = append(marks, m)
		}
	}
	return marks, nil
}

// witness keeps the witness of what a server holds, until the function that it returns is called.
func (e *Server) witness(ns *server.Server) (end func()) {
	stop, done := make(chan struct{}), make(chan struct{})
	held, _ := marksOf(ns) // without them the first look compares nothing
	go func() { defer close(done); e.keepWitness(ns, held, stop) }()
	return sync.OnceFunc(func() { close(stop); <-done })
}

// keepWitness writes what the store holds, again and again, until stop is closed. What it held before must be
// there.
func (e *Server) keepWitness(ns *server.Server, held []mark, stop <-chan struct{}) {
	tick := time.NewTicker(witnessEvery)
	defer tick.Stop()
	var seen, written []mark
	var settled time.Time // of seen
	told := 0             // how many damages the witness has
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		now, err := marksOf(ns)
		if err != nil || e.Failure() != nil {
			continue
		}
		e.compare(held, now)
		held = now
		lost := e.lasting()
		if e.Failure() != nil {
			continue
		}
		if seen != nil && (!reflect.DeepEqual(seen, written) || len(lost) > told) {
			written, told = seen, len(lost)
			e.saveWitness(&witness{
				Version: witnessVersion, At: time.Now().UTC(), Settled: settled, Streams: e.withBlocks(seen),
				Damages: lost,
			})
		}
		seen, settled = now, e.settling.note(time.Now().UTC(), now)
	}
}

// saveWitness writes the witness. A disk that cannot take it has failed, unless it is full: then the file
// stays behind while the disk is full.
func (e *Server) saveWitness(w *witness) {
	err := e.writeWitness(w)
	if err == nil {
		return
	}
	if f := (&Failure{Stream: WitnessFile, At: time.Now(), Cause: err}); !f.Full() {
		e.latch.note(f)
	}
	e.log.Warn().Err(err).Msg("the store's witness could not be written")
}

// withBlocks adds the numbers of the streams' block files.
func (f *files) withBlocks(marks []mark) []mark {
	full := make([]mark, len(marks))
	for i, m := range marks {
		folder := f.streamFolder(m.Name)
		// no block is reported as missing from a stream whose blocks cannot be listed
		m.Blocks, _ = storefile.Blocks(folder)
		if len(m.Blocks) > 0 {
			if info, err := os.Stat(storefile.BlockPath(folder, m.Blocks[0])); err == nil {
				m.FirstWritten = info.ModTime().UTC()
			}
		}
		full[i] = m
	}
	return full
}

// StreamFolder returns where the embedded store in a data directory has a stream's files. $G is the account
// of all of its clients.
func StreamFolder(dataDir, name string) string {
	return filepath.Join(dataDir, storeFolder, "jetstream", "$G", "streams", name)
}

func (f *files) streamFolder(name string) string { return StreamFolder(f.dataDir, name) }

// saveCleanWitness records what the closed store holds, with digests of the files that have no checksum of
// their own. The server does not sync what it closes.
func (e *Server) saveCleanWitness(marks []mark) {
	if e.Failure() != nil || marks == nil {
		return
	}
	for _, m := range marks {
		if err := storefile.Sync(e.streamFolder(m.Name)); err != nil {
			e.log.Warn().Err(err).Str("stream", m.Name).Msg("a closed stream could not be synced")
			return // the next start takes it for a store that was not closed
		}
	}
	now := time.Now().UTC()
	settled := e.settling.note(now, marks)
	w := &witness{
		Version: witnessVersion, At: now, Clean: true, Settled: settled, Streams: e.withBlocks(marks),
		Damages: e.lasting(),
	}
	for _, m := range w.Streams {
		for i, c := range m.Consumers {
			// without one its position is set at the next start
			m.Consumers[i].Digest, _ = storefile.ConsumerDigest(e.streamFolder(m.Name), c.Name)
		}
	}
	e.saveWitness(w)
}
