package embedded_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"verifyd/natsconf"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/natstest/prove"
	"verifyd/natsconf/provision"
	"verifyd/natsconf/topology"
	"verifyd/natsconf/wait"
)

var damageSeeds = flag.Int("damage-seeds", 1,
	"how many places each kind of damage of TestDamageIsFound strikes")

// sample is a store with messages on every stream, as a clean stop and as a kill have left it.
type sample struct {
	clean, unclean string
	held           map[string][]string // what each stream held
}

// newSample creates the store. The messages of the large streams are so large that these have several block
// files.
func newSample(t *testing.T, large ...string) *sample {
	t.Helper()
	s := &sample{
		clean: filepath.Join(t.TempDir(), "clean"), unclean: filepath.Join(t.TempDir(), "unclean"),
		held: map[string][]string{},
	}
	conn, stop := openStore(t, s.clean)
	for _, stream := range streamsOf() {
		size := fewBytes
		if slices.Contains(large, stream.Name) {
			size = sampleBytes
		}
		fillStream(t, conn, stream, size)
	}
	for _, stream := range streamsOf() {
		s.held[stream.Name] = contents(t, conn, stream.Name)
	}
	natstest.Await(t, "the witness knows all of it", func() bool {
		return embedded.WitnessHas(s.clean, lastOf(t, conn))
	})
	copyTree(t, s.clean, s.unclean)
	stop()
	return s
}

func streamsOf() []jetstream.StreamConfig {
	return topology.New(topology.Options{Embedded: true}).Streams
}

// openStore serves the store of a folder.
func openStore(t *testing.T, dir string) (conn *natsconf.Conn, stop func()) {
	t.Helper()
	conn, stop, err := tryStore(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	return conn, stop
}

func tryStore(t *testing.T, dir string) (conn *natsconf.Conn, stop func(), err error) {
	t.Helper()
	return tryStoreAs(t, dir, embedded.SyncAlways)
}

// noZeroTime is a log that fails the test if it shows an instant that is not known as the year 1.
type noZeroTime struct{ t *testing.T }

func (l noZeroTime) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("0001-01-01")) {
		l.t.Errorf("the log shows the zero instant: %s", line)
	}
	return len(line), nil
}

func tryStoreAs(t *testing.T, dir string, sync embedded.SyncMode,
	change ...func(*embedded.Server)) (conn *natsconf.Conn, stop func(), err error) {
	t.Helper()
	e, err := embedded.Open(embedded.Options{DataDir: dir, Sync: sync, Log: zerolog.New(noZeroTime{t})})
	if err != nil {
		return nil, nil, err
	}
	for _, c := range change {
		c(e)
	}
	served := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { served <- e.Serve(ctx) }()
	end := func() { cancel(); <-served; _ = e.Close() }
	select {
	case <-e.Ready():
	case err := <-served:
		cancel()
		_ = e.Close()
		return nil, nil, err
	}
	conn, err = natsconf.Connect(t.Context(), natsconf.ConnectOptions{Embedded: e, Log: zerolog.Nop()})
	if err != nil {
		end()
		return nil, nil, err
	}
	stop = func() { conn.Close(); end() }
	ensurer := provision.Ensurer{
		Conn: conn, Topology: topology.New(topology.Options{Embedded: true}), Update: true,
	}
	if err := ensurer.EnsureAtBoot(t.Context()); err != nil {
		stop()
		return nil, nil, err
	}
	if err := e.CheckServed(); err != nil {
		stop()
		return nil, nil, err
	}
	return conn, stop, nil
}

const (
	sampleMessages = 220
	// sampleBytes fills three block files of 8 MiB of a stream.
	sampleBytes = 96 << 10
	fewBytes    = 300
)

func fillStream(t *testing.T, conn *natsconf.Conn, c jetstream.StreamConfig, size int) {
	t.Helper()
	for i := range sampleMessages {
		subject := strings.NewReplacer("*", fmt.Sprintf("t%d", i), ">", fmt.Sprintf("t%d", i)).
			Replace(c.Subjects[0])
		m := &nats.Msg{
			Subject: subject, Data: bytes.Repeat([]byte{byte('a' + i%26)}, size), Header: nats.Header{
				"Verifyd-Test": {"x"},
			},
		}
		if c.AllowMsgCounter {
			m.Data = nil
			m.Header.Set("Nats-Incr", "1")
		}
		if _, err := conn.JS.PublishMsg(t.Context(), m); err != nil {
			t.Fatalf("%s: %v", subject, err)
		}
	}
}

func lastOf(t *testing.T, conn *natsconf.Conn) map[string]uint64 {
	t.Helper()
	last := map[string]uint64{}
	for _, c := range streamsOf() {
		_, n, err := conn.Bounds(t.Context(), c.Name)
		if err != nil {
			t.Fatal(err)
		}
		last[c.Name] = n
	}
	return last
}

// contents reads a whole stream.
func contents(t *testing.T, conn *natsconf.Conn, stream string) (all []string) {
	t.Helper()
	ctx, cancel := wait.For(t.Context(), natstest.TestTimeout) // its leader may be a new one
	defer cancel()
	_, last, err := conn.Bounds(ctx, stream)
	if err != nil {
		t.Fatal(err)
	}
	msgs, err := conn.Range(ctx, stream, ">", 1, last)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range msgs {
		all = append(all, m.Subject()+" "+string(m.Data()))
	}
	return all
}

func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("copy %s: %v %s", from, err, out)
	}
}

// harm is a way to damage the files of a stream.
type harm struct {
	name string
	do   func(t *testing.T, rng *rand.Rand, folder string, blocks []string)
}

var harms = []harm{
	{"flip", func(t *testing.T, rng *rand.Rand, _ string, blocks []string) {
		change(t, blocks[rng.IntN(len(blocks))], func(b []byte) []byte {
			b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
			return b
		})
	}},
	{"truncate", func(t *testing.T, rng *rand.Rand, _ string, blocks []string) {
		change(t, blocks[rng.IntN(len(blocks))], func(b []byte) []byte { return b[:rng.IntN(len(b))] })
	}},
	{"delete", func(t *testing.T, rng *rand.Rand, _ string, blocks []string) {
		if err := os.Remove(blocks[rng.IntN(len(blocks))]); err != nil {
			t.Fatal(err)
		}
	}},
	{"zero", func(t *testing.T, rng *rand.Rand, _ string, blocks []string) {
		change(t, blocks[rng.IntN(len(blocks))], func(b []byte) []byte {
			at := rng.IntN(len(b))
			clear(b[at:min(len(b), at+4096)])
			return b
		})
	}},
	{"swap", func(t *testing.T, _ *rand.Rand, _ string, blocks []string) {
		if len(blocks) < 2 {
			t.Skip("there is one block alone")
		}
		a, b := must(os.ReadFile(blocks[0])), must(os.ReadFile(blocks[1]))
		change(t, blocks[0], func([]byte) []byte { return b })
		change(t, blocks[1], func([]byte) []byte { return a })
	}},
	{"folder", func(t *testing.T, _ *rand.Rand, folder string, _ []string) {
		if err := os.RemoveAll(folder); err != nil {
			t.Fatal(err)
		}
	}},
	{"index", func(t *testing.T, rng *rand.Rand, folder string, _ []string) {
		path := filepath.Join(folder, "msgs", "index.db")
		if _, err := os.Stat(path); err != nil {
			t.Skip("there is no index")
		}
		change(t, path, func(b []byte) []byte { b[rng.IntN(len(b))] ^= 1 << rng.IntN(8); return b })
	}},
	{"metadata", func(t *testing.T, rng *rand.Rand, folder string, _ []string) {
		change(t, filepath.Join(folder, "meta.inf"), func(b []byte) []byte { return b[:rng.IntN(len(b))] })
	}},
}

func change(t *testing.T, path string, edit func([]byte) []byte) {
	t.Helper()
	if err := os.WriteFile(path, edit(must(os.ReadFile(path))), 0o600); err != nil {
		t.Fatal(err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// The files of each stream are damaged in each way, after a clean stop and after a kill. Either nothing is
// missing afterwards, or the start is refused and names the stream.
//
// docs/EVIDENCE.md has the command of a long run.
func TestDamageIsFound(t *testing.T) {
	natstest.NeedsEmbedded(t, "what its files hold")
	prove.Only(t, "disk", "it starts some two hundred stores")
	t.Parallel()
	large := []string{topology.StreamCompletions, topology.BucketStream(topology.BucketSessions)}
	few, many := newSample(t), newSample(t, large...) // in which one of the large streams is damaged
	var found, healed atomic.Int32
	t.Cleanup(func() {
		t.Logf("figures: %d damages were refused, %d healed by the server with nothing missing", found.Load(),
			healed.Load())
	})
	for _, c := range streamsOf() {
		s := few
		if slices.Contains(large, c.Name) {
			s = many
		}
		for _, h := range harms {
			for _, state := range []string{"clean", "unclean"} {
				for seed := range *damageSeeds {
					t.Run(fmt.Sprintf("%s/%s/%s/%d", c.Name, h.name, state, seed), func(t *testing.T) {
						t.Parallel()
						dir := filepath.Join(t.TempDir(), "store")
						copyTree(t, map[string]string{"clean": s.clean, "unclean": s.unclean}[state], dir)
						folder := filepath.Join(dir, "nats", "jetstream", "$G", "streams", c.Name)
						blocks := must(filepath.Glob(filepath.Join(folder, "msgs", "*.blk")))
						h.do(t, rand.New(rand.NewPCG(uint64(seed), 1)), folder, blocks)
						if s.judge(t, dir, c) {
							found.Add(1)
						} else {
							healed.Add(1)
						}
					})
				}
			}
		}
	}
}

// judge starts a damaged store and reports whether it was refused.
func (s *sample) judge(t *testing.T, dir string, c jetstream.StreamConfig) (refused bool) {
	t.Helper()
	conn, stop, err := tryStore(t, dir)
	if damage, ok := errors.AsType[*embedded.DamageError](err); ok {
		if !slices.ContainsFunc(damage.Damages, func(d embedded.Damage) bool { return d.Stream == c.Name }) {
			t.Errorf("another stream is said to be damaged: %v", err)
		}
		return true
	}
	if err != nil {
		t.Fatalf("the start fails: %v", err)
	}
	defer stop()
	for _, other := range streamsOf() {
		if c.PersistMode == jetstream.AsyncPersistMode && other.Name == c.Name {
			continue // no promise depends on it
		}
		if have, want := contents(t, conn, other.Name), s.held[other.Name]; !slices.Equal(have, want) {
			t.Errorf("%s has %d messages of %d, and nobody was told", other.Name, len(have), len(want))
		}
	}
	return false
}

// Whatever the file with a consumer's position contains, nothing that was not acknowledged is left out.
func TestDamagedPositionIsReset(t *testing.T) {
	natstest.NeedsEmbedded(t, "what its files hold")
	t.Parallel()
	for _, state := range []string{"clean", "unclean"} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "store")
			conn, stop := openStore(t, dir)
			for i := range 20 {
				if _, err := conn.JS.Publish(t.Context(), fmt.Sprintf("completion.t%d", i), nil); err != nil {
					t.Fatal(err)
				}
			}
			natstest.Await(t, "the witness knows all of it", func() bool {
				return embedded.WitnessHas(dir, lastOf(t, conn))
			})
			other := filepath.Join(t.TempDir(), "other")
			copyTree(t, dir, other)
			stop()
			if state == "unclean" {
				dir = other
			}
			path := filepath.Join(dir, "nats", "jetstream", "$G", "streams", topology.StreamCompletions,
				"obs", topology.ConsumerDispatcher, "o.dat")
			// all but five are acknowledged
			if err := os.WriteFile(path, []byte{22, 2, 15, 15, 15, 15, 0, 0}, 0o600); err != nil {
				t.Fatal(err)
			}
			conn, stop = openStore(t, dir)
			defer stop()
			state, err := conn.ConsumerState(t.Context(), topology.StreamCompletions,
				topology.ConsumerDispatcher)
			if err != nil || state.Waiting != 20 {
				t.Errorf("%d messages wait, want 20; %v", state.Waiting, err)
			}
		})
	}
}

// A lost store is not silently replaced by an empty one.
func TestLostStoreIsNotRecreated(t *testing.T) {
	natstest.NeedsEmbedded(t, "what its files hold")
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "store")
	conn, stop := openStore(t, dir)
	fillStream(t, conn, streamsOf()[0], fewBytes)
	stop()
	if err := os.RemoveAll(filepath.Join(dir, "nats")); err != nil {
		t.Fatal(err)
	}
	_, _, err := tryStore(t, dir)
	if _, ok := errors.AsType[*embedded.DamageError](err); !ok ||
		!strings.Contains(err.Error(), "its files are gone") {
		t.Errorf("a start on a lost store: %v", err)
	}
}

// The first message of a stream that no promise depends on is lost: the start reports when it was stored as
// far as that is known, and nothing is older.
func TestLossWithNothingBeforeItIsDated(t *testing.T) {
	natstest.NeedsEmbedded(t, "what its files hold")
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "store")
	conn, stop := openStore(t, dir)
	if _, err := conn.JS.Publish(t.Context(), "session.opened.t", []byte("text")); err != nil {
		t.Fatal(err)
	}
	stop()
	change(t, filepath.Join(dir, "nats", "jetstream", "$G", "streams", topology.StreamEvents, "msgs",
		"1.blk"), func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
	_, stop = openStore(t, dir)
	stop()
}
