//go:debug randseednop=0

package simulation_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/dispatcher/callback/localca"
	"verifyd/natsconf/provision"
	"verifyd/natsconf/topology"
)

var (
	schedules = flag.Int("schedules", 10_000, "how many schedules to run; a fiftieth with -short")
	firstSeed = flag.Uint64("first-seed", 1, "the seed of the first schedule")
	oneSeed   = flag.Uint64("seed", 0, "run the schedule of this seed alone, and print its trace")
	repeated  = flag.Int("repeated", 40, "how many schedules to play twice")
	share     = flag.Bool("share", false, "this process is one of those that share the schedules")
)

// endsWithin is how long after the faults the last delivery has ended: RetryFor, that again for a dispatcher
// that has just started, and a few times AckWait.
const endsWithin = 5 * time.Minute

var (
	receiverCA  *localca.Authority
	receiverTLS *tls.Config
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(m.Run())
}

// prepare makes the receivers' certificates, in a bubble: in virtual time it is the year 2000.
var prepare = sync.OnceFunc(func() {
	var err error
	if receiverCA, err = localca.New(); err != nil {
		panic(err)
	}
	c := localca.Certificate{}
	for i := range receivers {
		host, _, _ := strings.Cut(receiverAt(i), ":")
		c.Hosts = append(c.Hosts, host)
	}
	cert, err := receiverCA.Issue(c)
	if err != nil {
		panic(err)
	}
	receiverTLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
})

// run plays the schedule of a seed.
func run(t *testing.T, seed uint64) (w *world) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		prepare()
		rand.Seed(int64(seed)) //nolint:staticcheck // what the client draws its pauses from
		w = newWorld(t, seed)
		w.calm = true
		defer func() {
			time.Sleep(2 * time.Minute) // what a stopped dispatcher has still to end, ends
			w.talking.Wait()
		}()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		by, ok := w.start(ctx, "judge")
		if !ok {
			w.fail("no connection")
			return
		}
		defer by.close()
		w.provision(ctx, by)
		w.play(ctx, by)
	})
	return w
}

// provision makes the streams that take part.
func (w *world) provision(ctx context.Context, by *process) {
	all := topology.New(topology.Options{Embedded: true})
	all.Streams = slices.DeleteFunc(all.Streams, func(s jetstream.StreamConfig) bool {
		return !slices.Contains([]string{
			topology.StreamCompletions, topology.StreamRetries, topology.StreamEvents,
			topology.StreamSessionKeys, topology.BucketStream(topology.BucketSessions),
			topology.BucketStream(topology.BucketStore),
		}, s.Name)
	})
	if err := (provision.Ensurer{Conn: by.conn, Topology: all}).Ensure(ctx); err != nil {
		w.fail("provision: %v", err)
	}
}

// play has the actors do their parts while the faults happen, and judges what came of it.
func (w *world) play(ctx context.Context, by *process) {
	r := w.draw("schedule")
	var edges []*edge
	for i := range 2 {
		p, _ := w.start(ctx, fmt.Sprint("e", i))
		edges = append(edges, &edge{p})
		defer p.close()
	}
	all := make([]*session, 1+r.IntN(6))
	for i := range all {
		all[i] = w.newSession(i)
	}
	late := r.Float64() < 0.05 // sessions are completed about when they expire
	if late {
		for _, s := range all {
			s.start(ctx, edges)
		}
		time.Sleep(10*time.Minute - 10*time.Second)
	}
	var dispatchers []*worker
	work, stop := context.WithCancel(ctx)
	for i := range 1 + min(1, r.IntN(4)) { // mostly two
		k := &worker{w: w, name: fmt.Sprint("d", i), work: work}
		dispatchers = append(dispatchers, k)
		k.begin(time.Duration(i) * time.Millisecond) // not at the same instant
	}
	w.mu.Lock()
	w.calm = false
	w.mu.Unlock()
	var users sync.WaitGroup
	for _, s := range all {
		at := time.Duration(r.IntN(20_000)) * time.Millisecond
		users.Go(func() {
			time.Sleep(at)
			if !late && !s.start(ctx, edges) {
				return
			}
			if s.started != nil {
				s.end(ctx, edges)
			}
		})
	}
	w.storm(dispatchers, edges)
	users.Wait()
	w.awaitEnd(ctx, by)
	for _, s := range all {
		s.judge(ctx, by)
	}
	stop()
	for _, k := range dispatchers {
		k.all.Wait()
	}
}

// awaitEnd waits until nothing is left to deliver.
func (w *world) awaitEnd(ctx context.Context, by *process) {
	for late := time.Now().Add(endsWithin); time.Now().Before(late); time.Sleep(time.Second) {
		left := uint64(0)
		for _, c := range topology.DispatcherConsumers() {
			s, err := by.conn.ConsumerState(ctx, c.Stream, c.Config.Durable)
			if err != nil {
				w.fail("read a consumer: %v", err)
				return
			}
			left += s.Waiting + s.Given
		}
		if _, err := by.conn.Last(ctx, topology.StreamRetries, "schedule.*"); err == nil {
			left++
		}
		if left == 0 {
			return
		}
	}
	w.fail("not everything has ended %s after the faults", endsWithin)
}

// tracesShown is of how many broken schedules the whole trace is printed.
const tracesShown = 3

// summary is what a process reports of its share.
type summary struct {
	Schedules int
	Kinds     map[string]int // faults and ends; the number of schedules in which each happened
	Hashes    map[uint64]uint64
	Broken    map[uint64][]string
}

// hash sums up what happened in a schedule, when and in which order.
func (w *world) hash() uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(strings.Join(w.trace, "\n")))
	return h.Sum64()
}

func runShare(t *testing.T) {
	t.Helper()
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(-1) // between the schedules alone
	sum := summary{Kinds: map[string]int{}, Hashes: map[uint64]uint64{}, Broken: map[uint64][]string{}}
	for i := range *schedules {
		w := run(t, *firstSeed+uint64(i))
		// The client's pool of timers outlives the bubble, and they do not: two collections empty a pool.
		runtime.GC()
		runtime.GC()
		sum.Schedules++
		for kind := range w.kinds {
			sum.Kinds[kind]++
		}
		sum.Hashes[w.seed] = w.hash()
		if len(w.broken) > 0 {
			sum.Broken[w.seed] = w.trace
		}
	}
	data, err := json.Marshal(sum)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("summary %s\n", data)
}

// TestSeedsRepeat plays schedules twice, and compares everything that happened in them, with its order and
// virtual time. Most are the same. What no seed decides is what Go draws for itself: which case of a select
// is taken where several are ready, the order of timers of one instant, the place of a delivery among the
// turns of the in-flight set, and the pause between two conditional writes (natsconf.Retry).
func TestSeedsRepeat(t *testing.T) {
	if testing.Short() {
		t.Skip("under the race detector, where the short tests run, chance orders goroutines")
	}
	one, other := playAll(t, *firstSeed, *repeated), playAll(t, *firstSeed, *repeated)
	same := 0
	for seed, h := range one.Hashes {
		if other.Hashes[seed] == h {
			same++
		}
	}
	if 3*same < len(one.Hashes) { // about two thirds are
		t.Errorf("%d of %d schedules were the same twice", same, len(one.Hashes))
	}
	t.Logf("figures: %d of %d schedules were the same twice", same, len(one.Hashes))
}

// TestSimulation plays schedules, a share on each processor.
func TestSimulation(t *testing.T) {
	switch {
	case *share:
		runShare(t)
		return
	case *oneSeed != 0:
		runtime.GOMAXPROCS(1)
		w := run(t, *oneSeed)
		t.Log("\n" + strings.Join(w.trace, "\n"))
		for _, b := range w.broken {
			t.Error(b)
		}
		return
	}
	if testing.Short() {
		*schedules /= 50
	}
	begun := time.Now()
	sum := playAll(t, *firstSeed, *schedules)
	took := time.Since(begun)
	for i, seed := range slices.Sorted(maps.Keys(sum.Broken)) {
		trace := sum.Broken[seed]
		if i >= tracesShown {
			trace = nil
		}
		t.Errorf("seed %d; again: "+
			"go test ./dispatcher/simulation -run 'TestSimulation$' -v -args -seed %d\n%s",
			seed, seed, strings.Join(trace, "\n"))
	}
	var kinds []string
	for _, kind := range sortedKeys(sum.Kinds) {
		kinds = append(kinds, fmt.Sprintf("%s %d", kind, sum.Kinds[kind]))
	}
	t.Logf("figures: %d schedules, %d of them broken, %.0f a second", sum.Schedules, len(sum.Broken),
		float64(sum.Schedules)/took.Seconds())
	t.Logf("in how many schedules: %s", strings.Join(kinds, ", "))
}

// playAll shares schedules among processes, one for each processor.
func playAll(t *testing.T, first uint64, n int) summary {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	all := summary{Kinds: map[string]int{}, Hashes: map[uint64]uint64{}, Broken: map[uint64][]string{}}
	var mu sync.Mutex
	var processes sync.WaitGroup
	const chunk = 250 // schedules of one process: a bubble leaves a little behind
	room := make(chan struct{}, runtime.NumCPU())
	for at := 0; at < n; at += chunk {
		room <- struct{}{}
		processes.Go(func() {
			defer func() { <-room }()
			c := exec.CommandContext(t.Context(), program, "-test.run", "^TestSimulation$",
				"-test.timeout", "4m", "-share", "-first-seed", fmt.Sprint(first+uint64(at)),
				"-schedules", fmt.Sprint(min(chunk, n-at)))
			out, err := c.CombinedOutput()
			_, report, ok := bytes.Cut(out, []byte("summary "))
			report, _, _ = bytes.Cut(report, []byte("\n"))
			var sum summary
			if !ok || json.Unmarshal(report, &sum) != nil {
				t.Errorf("the schedules from seed %d on: %v\n%s", first+uint64(at), err, out)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			all.Schedules += sum.Schedules
			for kind, n := range sum.Kinds {
				all.Kinds[kind] += n
			}
			maps.Copy(all.Hashes, sum.Hashes)
			maps.Copy(all.Broken, sum.Broken)
		})
	}
	processes.Wait()
	return all
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
