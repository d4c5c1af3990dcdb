//go:debug randseednop=0

package simulation_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/dispatcher/callback/localca"
	"verifyd/natsconf/natstest/prove"
	"verifyd/natsconf/provision"
	"verifyd/natsconf/topology"
)

var (
	schedules = flag.Int("schedules", prove.Size("simulation", 200, 10_000), "how many schedules to run")
	firstSeed = flag.Uint64("first-seed", 0, "the seed of the first schedule; 0: the commit decides it, "+
		"so that each has schedules of its own")
	oneSeed  = flag.Uint64("seed", 0, "run the schedule of this seed alone, and print its trace")
	oneLuck  = flag.Uint64("luck", 0, "with -seed: what Go draws is derived from the seed and this")
	repeated = flag.Int("repeated", 40, "how many schedules to play twice")
	share    = flag.Bool("share", false, "this process is one of those that share the schedules")
	alone    = flag.Bool("alone", false, "this process plays one schedule, and its chance is chosen")
)

// endsWithin is how long after the faults the last delivery ends at the latest: RetryFor, the same again for
// a dispatcher that has just started, and a few times AckWait.
const endsWithin = 5 * time.Minute

var (
	receiverCA  *localca.Authority
	receiverTLS *tls.Config
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(m.Run())
}

// prepare creates the receivers' certificates, in a bubble: virtual time begins in the year 2000.
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
		if *alone {
			cryptotest.SetGlobalRandom(t, 0)
		}
		prepare()
		if *alone {
			cryptotest.SetGlobalRandom(t, seed)
		}
		rand.Seed(int64(seed)) //nolint:staticcheck // the client draws its pauses from this source
		w = newWorld(t, seed)
		w.calm = true
		defer func() {
			time.Sleep(2 * time.Minute) // in virtual time: a stopped dispatcher ends its work
			w.serving.Wait()
		}()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		by, ok := w.start(ctx, "judge", new(atomic.Int64))
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

// provision creates the streams that a schedule needs.
func (w *world) provision(ctx context.Context, by *process) {
	all := topology.New(topology.Options{Embedded: true})
	all.Streams = slices.DeleteFunc(all.Streams, func(s jetstream.StreamConfig) bool {
		return !slices.Contains([]string{
			topology.StreamCompletions, topology.StreamRetries, topology.StreamEvents,
			topology.StreamSessionKeys, topology.BucketStream(topology.BucketSessions),
			topology.BucketStream(topology.BucketStore), topology.BucketStream(topology.BucketIdentities),
		}, s.Name)
	})
	all.Consumers = topology.DispatcherConsumers() // without those for notices
	if err := (provision.Ensurer{Conn: by.conn, Topology: all}).Ensure(ctx); err != nil {
		w.fail("provision: %v", err)
	}
}

// play runs the actors while the faults happen, and judges the result.
func (w *world) play(ctx context.Context, by *process) {
	r := w.draw("schedule")
	work, stop := context.WithCancel(ctx)
	defer stop()
	var edges, dispatchers []*worker
	begin := func(name string, part func(*life) (func(context.Context), error)) *worker {
		k := &worker{w: w, name: name, work: work, part: part}
		w.workers = append(w.workers, k)
		k.begin(time.Duration(len(w.workers)) * time.Millisecond) // not at the same instant
		return k
	}
	for i := range 2 {
		edges = append(edges, begin(fmt.Sprint("e", i), runEdge))
	}
	all := make([]*session, 1+r.IntN(6))
	for i := range all {
		all[i] = w.newSession(i)
	}
	late := r.Float64() < 0.05 // sessions are completed at about the time when they expire
	if late {
		for _, s := range all {
			s.start(edges)
		}
		time.Sleep(10*time.Minute - 10*time.Second) // in virtual time
	}
	for i := range 1 + min(1, r.IntN(4)) { // mostly two
		dispatchers = append(dispatchers, begin(fmt.Sprint("d", i), runDispatcher))
	}
	w.mu.Lock()
	w.calm = false
	w.mu.Unlock()
	var users sync.WaitGroup
	for _, s := range all {
		at := time.Duration(r.IntN(20_000)) * time.Millisecond
		users.Go(func() {
			time.Sleep(at) // in virtual time
			if !late && !s.start(edges) {
				return
			}
			if s.started != nil {
				s.end(ctx, edges)
			}
		})
	}
	w.storm(dispatchers, edges)
	users.Wait()
	for _, s := range all {
		users.Go(func() { s.endCalmly(ctx, by, edges) })
	}
	users.Wait()
	w.awaitEnd(ctx, by)
	for _, s := range all {
		s.judge(ctx, by)
	}
	stop()
	for _, k := range w.workers {
		k.all.Wait()
	}
}

// awaitEnd waits until nothing is left to deliver.
func (w *world) awaitEnd(ctx context.Context, by *process) {
	// in virtual time, as every sleep here
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
		open, err := by.store.Unfinished(ctx) // also what no message leads to
		if err != nil {
			w.fail("read the facts: %v", err)
			return
		}
		if left+uint64(len(open)) == 0 {
			return
		}
	}
	w.fail("not everything has ended %s after the faults", endsWithin)
}

// tracesShown is the number of broken schedules whose whole trace is printed.
const tracesShown = 3

// summary is what a process reports of its share.
type summary struct {
	Schedules int
	Kinds     map[string]int      // faults and ends; the number of schedules in which each happened
	Broken    map[uint64][]string // what did not hold
	Traces    map[uint64][]string // of broken schedules, and of one that was played alone
	Hash      uint64              // of one that was played alone: everything that happened, and when
}

func newSummary() summary {
	return summary{Kinds: map[string]int{}, Broken: map[uint64][]string{}, Traces: map[uint64][]string{}}
}

func (s *summary) add(w *world) {
	s.Schedules++
	for kind := range w.kinds {
		s.Kinds[kind]++
	}
	if len(w.broken) > 0 {
		s.Broken[w.seed] = w.broken
	}
	if len(w.broken) > 0 || *alone {
		s.Traces[w.seed] = w.trace
	}
	s.Hash = w.whole.Sum64()
}

// clientTimers is the pool of the NATS client's timers.
//
//go:linkname clientTimers github.com/nats-io/nats%2ego.globalTimerPool
var clientTimers sync.Pool

// collectEvery is the number of schedules after which garbage is collected: after each schedule that took a
// fifth of the time.
const collectEvery = 10

// runShare plays schedules in this process.
func runShare(t *testing.T) {
	t.Helper()
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(-1) // only between the schedules
	sum := newSummary()
	for i := range *schedules {
		sum.add(run(t, *firstSeed+uint64(i)))
		if *alone {
			break
		}
		for clientTimers.Get() != nil { // the pool outlives the bubble, and its timers do not
			continue
		}
		if i%collectEvery == 0 {
			runtime.GC()
		}
	}
	data, err := json.Marshal(sum)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("summary %s\n", data)
}

// runOne plays one schedule, and prints its trace.
func runOne(t *testing.T) {
	t.Helper()
	sum, err := playAlone(t.Context(), *oneSeed, *oneLuck)
	switch {
	case free(err):
		t.Logf("another run may differ: %v", err)
		runtime.GOMAXPROCS(1)
		*alone = true
		sum = newSummary()
		sum.add(run(t, *oneSeed))
	case err != nil:
		t.Fatal(err)
	}
	t.Log("\n" + strings.Join(sum.Traces[*oneSeed], "\n"))
	for _, b := range sum.Broken[*oneSeed] {
		t.Error(b)
	}
}

// TestSimulation plays schedules, a share on each processor.
func TestSimulation(t *testing.T) {
	switch {
	case *share, *alone:
		runShare(t)
		return
	case *oneSeed != 0:
		runOne(t)
		return
	}
	first := *firstSeed
	if first == 0 {
		first = seedOfCommit(t)
	}
	begun := time.Now()
	sum := playAll(t, first, *schedules)
	took := time.Since(begun)
	for i, seed := range slices.Sorted(maps.Keys(sum.Broken)) {
		t.Errorf("seed %d: %s", seed, strings.Join(sum.Broken[seed], "; "))
		if i < tracesShown {
			report(t, seed, sum.Traces[seed])
		}
	}
	var kinds []string
	for _, kind := range sortedKeys(sum.Kinds) {
		kinds = append(kinds, fmt.Sprintf("%s %d", kind, sum.Kinds[kind]))
	}
	t.Logf("figures: %d schedules from seed %d, %d of them broken, %.0f a second", sum.Schedules, first,
		len(sum.Broken), float64(sum.Schedules)/took.Seconds())
	t.Logf("in how many schedules: %s", strings.Join(kinds, ", "))
}

// seedOfCommit returns a seed that follows from the checked-out commit, or 1 without git.
func seedOfCommit(t *testing.T) uint64 {
	t.Helper()
	hash, err := exec.CommandContext(t.Context(), "git", "rev-parse", "HEAD").Output()
	if err != nil || len(hash) < 8 {
		return 1
	}
	seed, err := strconv.ParseUint(string(hash[:8]), 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return max(seed, 1)
}

// report prints how to play a broken schedule again. Its chance was another one among others, so report
// looks for a luck that breaks it alone.
func report(t *testing.T, seed uint64, trace []string) {
	t.Helper()
	again := fmt.Sprintf("go test ./cmd/verifyd/simulation -run 'TestSimulation$' -v -args -seed %d", seed)
	luck, err := luckOf(t.Context(), seed)
	if err == nil {
		t.Errorf("the same each time: %s -luck %d", again, luck)
		return
	}
	t.Errorf("%s\nmay hold: %v; what happened among others:\n%s", again, err, strings.Join(trace, "\n"))
}

// playAll shares schedules among processes, one for each processor.
func playAll(t *testing.T, first uint64, n int) summary {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	all := newSummary()
	var mu sync.Mutex
	var processes sync.WaitGroup
	const chunk = 250 // schedules of one process: each bubble leaves a little in memory
	room := make(chan struct{}, runtime.NumCPU())
	for at := 0; at < n; at += chunk {
		room <- struct{}{}
		processes.Go(func() {
			defer func() { <-room }()
			c := exec.CommandContext(t.Context(), program, "-test.run", "^TestSimulation$",
				"-test.timeout", "4m", "-share", "-first-seed", fmt.Sprint(first+uint64(at)),
				"-schedules", fmt.Sprint(min(chunk, n-at)))
			out, err := c.CombinedOutput()
			sum, unread := readSummary(out)
			if err := errors.Join(err, unread); err != nil {
				t.Errorf("the schedules from seed %d on: %v\n%s", first+uint64(at), err, out)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			all.Schedules += sum.Schedules
			for kind, n := range sum.Kinds {
				all.Kinds[kind] += n
			}
			maps.Copy(all.Broken, sum.Broken)
			maps.Copy(all.Traces, sum.Traces)
		})
	}
	processes.Wait()
	return all
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
