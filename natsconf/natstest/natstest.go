// Package natstest provides tests with a real embedded JetStream with the whole topology, on a folder of its
// own, synced as in production. Tests that wait for the product's own pauses and time-outs run in virtual
// time instead, on the broker for simulations (package virtual). There is no mock of the broker in this
// project.
package natstest

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"maps"
	"math"
	"net/url"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"verifyd/natsconf"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/natstest/prove"
	"verifyd/natsconf/provision"
	"verifyd/natsconf/topology"
	"verifyd/natsconf/wait"
)

// Start runs an embedded server with the topology until the test ends, and returns a connection to it.
func Start(tb testing.TB) *natsconf.Conn {
	tb.Helper()
	conn, _ := StartIn(tb, tb.TempDir())
	return conn
}

// StartCluster is Start on three servers, whatever the switch says, for a test of the proof "cluster".
func StartCluster(tb testing.TB) *natsconf.Conn {
	tb.Helper()
	prove.Only(tb, "cluster", "it runs three NATS servers")
	conn, _ := joinIn(tb, tb.TempDir())
	return conn
}

// StartIn is Start on a given data directory. stop ends everything early, for tests that start again on the
// same directory.
func StartIn(tb testing.TB, dir string) (conn *natsconf.Conn, stop func()) {
	tb.Helper()
	if OnCluster() {
		return joinIn(tb, dir)
	}
	e, conn, stopServer := StartServer(tb, embedded.Options{DataDir: dir})
	e.StageInMemory()
	stop = sync.OnceFunc(func() {
		conn.Close()
		stopServer()
		if err := e.Close(); err != nil {
			tb.Error(err)
		}
	})
	tb.Cleanup(stop)
	return conn, stop
}

// StartServer runs an embedded server of these options until the test ends, with the topology, and returns
// it and a connection to it, also where the switch asks for three servers. stop ends the run; the server may
// be served again under the same connection.
func StartServer(tb testing.TB, o embedded.Options) (e *embedded.Server, conn *natsconf.Conn, stop func()) {
	tb.Helper()
	o.Log = zerolog.Nop()
	e, err := embedded.Open(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = e.Close() })
	stop = Serve(tb, e)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	select {
	case <-e.Ready():
	case <-ctx.Done():
		tb.Fatal("the embedded server did not start")
	}
	conn, err = natsconf.Connect(ctx, natsconf.ConnectOptions{
		Embedded: e, Name: tb.Name(), Log: zerolog.Nop(),
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(conn.Close)
	Ensure(tb, conn)
	return e, conn, stop
}

// joinIn is StartIn on the cluster: the servers stay when the test lets go of them.
func joinIn(tb testing.TB, dir string) (conn *natsconf.Conn, stop func()) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := natsconf.Connect(ctx, natsconf.ConnectOptions{
		URL: ClusterURL(tb, dir), Name: tb.Name(), Log: zerolog.Nop(),
	})
	if err != nil {
		tb.Fatal(err)
	}
	stop = sync.OnceFunc(conn.Close)
	tb.Cleanup(stop)
	Ensure(tb, conn)
	return conn, stop
}

// URL returns the address of the server that StartIn runs on a directory, with a credential, for other
// processes and programs.
func URL(tb testing.TB, dir string) string {
	tb.Helper()
	if OnCluster() {
		return ClusterURL(tb, dir)
	}
	return endpointURL(tb, dir)
}

func endpointURL(tb testing.TB, dir string) string {
	tb.Helper()
	end, err := embedded.ReadEndpoint(dir)
	if err != nil {
		tb.Fatal(err)
	}
	at, err := url.Parse(end.URL)
	if err != nil {
		tb.Fatal(err)
	}
	at.User = url.UserPassword(end.User, end.Password)
	return at.String()
}

// Bare runs a server without the topology until the test ends, as an operator's own would be that verifyd
// has never seen, and returns its URL with the credential.
func Bare(tb testing.TB, dir string) (address string) {
	tb.Helper()
	e, err := embedded.Open(embedded.Options{DataDir: dir, Log: zerolog.Nop()})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := e.Close(); err != nil {
			tb.Error(err)
		}
	})
	Serve(tb, e)
	Receive(tb, "the server is ready", e.Ready())
	return endpointURL(tb, dir)
}

// Options are the topology's for the server behind a connection.
func Options(c *natsconf.Conn) topology.Options {
	switch {
	case c.NC.ConnectedClusterName() != "":
		return topology.Options{Replicas: Replicas}
	case c.NC.ConnectedServerName() == externalName:
		return topology.Options{Replicas: 1}
	default:
		return topology.Options{Embedded: true}
	}
}

// Ensure creates the topology on a server, on a cluster with as many copies as that keeps.
func Ensure(tb testing.TB, c *natsconf.Conn) {
	tb.Helper()
	o := Options(c)
	all := topology.New(o)
	parts := []topology.Topology{all}
	// each stream waits for the election of its leader, and they need not wait for each other
	if o.Replicas > 1 {
		parts = nil
		for _, s := range all.Streams {
			parts = append(parts, topology.Topology{Streams: []jetstream.StreamConfig{s}})
		}
	}
	var wg sync.WaitGroup
	for _, part := range parts {
		wg.Go(func() { ensure(tb, c, part) })
	}
	wg.Wait()
	ensure(tb, c, topology.Topology{Consumers: all.Consumers})
}

func ensure(tb testing.TB, c *natsconf.Conn, part topology.Topology) {
	tb.Helper()
	if err := (provision.Ensurer{Conn: c, Topology: part}).EnsureAtBoot(tb.Context()); err != nil {
		tb.Error(err)
	}
}

// Serve runs an actor until the test ends or stop is called, which waits until it has returned. On a cluster
// an actor that has ended for want of a leader is served again, as the supervisor does.
func Serve(tb testing.TB, actor interface {
	Serve(ctx context.Context) error
}) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := actor.Serve(ctx)
		for OnCluster() && errors.Is(err, natsconf.ErrUnavailable) && ctx.Err() == nil {
			err = actor.Serve(ctx)
		}
		if err != nil && ctx.Err() == nil {
			tb.Errorf("%v: %v", actor, err)
		}
	}()
	stop = func() { cancel(); <-done }
	tb.Cleanup(stop)
	return stop
}

// inFlight is how many tests of a package run at once, and fewInFlight on a cluster, where each test's
// streams are raft groups of three, and under the race detector, with which tests compute rather than wait.
// go test runs as many packages at once as there are processors: with ten tests each, deadlines passed while
// tests waited for each other.
const inFlight, fewInFlight = 4, 2

// Tests are a package's tests, with a bound of those in flight, whatever the number of processors: they wait
// for disks, elections and time-outs, and hardly compute. Quick tests have their folders in memory, where
// there is room. Garbage is collected at five times what lives, unless GOGC says otherwise: at twice it took
// a tenth of what tests compute. TestMain runs them.
func Tests(m *testing.M) interface{ Run() int } { return bounded{m} }

type bounded struct{ *testing.M }

// Run runs the tests.
func (b bounded) Run() int {
	flag.Parse()
	defer inMemory()()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	// The fuzzer's workers compute, and stay as many as there are processors.
	if f := flag.Lookup("test.fuzz"); f == nil || f.Value.String() == "" {
		tests := inFlight
		if OnCluster() || raceDetector() {
			tests = fewInFlight
		}
		if err := flag.Set("test.parallel", strconv.Itoa(tests)); err != nil {
			panic(err)
		}
	}
	return b.M.Run()
}

func raceDetector() bool {
	build, known := debug.ReadBuildInfo()
	return known && slices.Contains(build.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// TestTimeout bounds a test's wait for what takes moments: on a machine with other work they may be long,
// and a test that is stuck ends.
const TestTimeout = 2 * time.Minute

// Outdate changes a store's streams to the settings that builds before 0.10.0 made and need.
func Outdate(tb testing.TB, c *natsconf.Conn) {
	tb.Helper()
	for _, name := range topology.StreamNames() {
		s, err := c.JS.Stream(tb.Context(), name)
		if err != nil {
			tb.Fatal(err)
		}
		old := s.CachedInfo().Config
		switch name {
		case topology.StreamCompletions:
			old.AllowMsgTTL = true
		case topology.BucketStream(topology.BucketAccounts), topology.BucketStream(topology.BucketKeys):
			old.MaxMsgsPerSubject = 5
		}
		old.AllowRollup = old.AllowRollup || strings.HasPrefix(name, topology.BucketStream(""))
		if _, err := c.JS.UpdateStream(tb.Context(), old); err != nil {
			tb.Fatal(err)
		}
	}
}

// OnlyEntry returns the only entry of a bucket. A replica may be behind the leader, so it waits until the
// entry can be read from whichever server answers.
func OnlyEntry(tb testing.TB, kv jetstream.KeyValue) (e jetstream.KeyValueEntry) {
	tb.Helper()
	Await(tb, "the only entry of "+kv.Bucket(), func() bool {
		names, err := kv.Keys(tb.Context())
		if err == nil && len(names) == 1 {
			e, err = kv.Get(tb.Context(), names[0])
		}
		return err == nil && e != nil
	})
	return e
}

// Patient returns a context under which calls to the store wait for it, as those of requests do (package
// wait). It is for what a test prepares: on a cluster the servers may elect a leader at any time.
func Patient(tb testing.TB) context.Context {
	ctx, cancel := wait.For(tb.Context(), TestTimeout)
	tb.Cleanup(cancel)
	return ctx
}

// Publish stores a message past the product's writers, as another program does, and returns its sequence. It
// waits for a leader: on a cluster the servers may elect one at any time, for longer than the client tries by
// itself, and one that steps down may leave a message without an answer, stored or not.
func Publish(tb testing.TB, c *natsconf.Conn, subject string, data []byte, headers ...nats.Header) uint64 {
	tb.Helper()
	m := &nats.Msg{Subject: subject, Data: data, Header: nats.Header{}}
	for _, h := range headers {
		maps.Copy(m.Header, h)
	}
	for began := time.Now(); ; {
		ctx, cancel := context.WithTimeout(tb.Context(), answerTimeout)
		ack, err := c.JS.PublishMsg(ctx, m, jetstream.WithRetryWait(awaitLook),
			jetstream.WithRetryAttempts(math.MaxInt))
		cancel()
		if err == nil {
			return ack.Sequence
		}
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > TestTimeout {
			tb.Fatalf("%s: %v", m.Subject, err)
		}
		if stream, err := c.JS.StreamNameBySubject(tb.Context(), m.Subject); err == nil {
			last, err := c.Last(tb.Context(), stream, m.Subject)
			if err == nil && last.Time.After(began) && bytes.Equal(last.Data, m.Data) {
				return last.Sequence
			}
		}
	}
}

// answerTimeout bounds one try of Publish.
const answerTimeout = 10 * time.Second

// Plant stores a server's answer on a subject of a stream, as a client with access to the server can. It asks
// for another one while nothing is stored: the server sends it to nobody while the stream has no leader.
func Plant(tb testing.TB, c *natsconf.Conn, stream, subject string) {
	tb.Helper()
	before := SequenceOf(tb, c, stream, subject)
	ask := func() {
		if err := c.NC.PublishRequest("$JS.API.INFO", subject, nil); err != nil {
			tb.Fatal(err)
		}
	}
	ask()
	again := time.NewTicker(2 * time.Second)
	defer again.Stop()
	Await(tb, "a server's answer on "+subject, func() bool {
		select {
		case <-again.C:
			ask()
		default:
		}
		return SequenceOf(tb, c, stream, subject) > before
	})
}

// SequenceOf returns the sequence of the last message on a subject, 0 if there is none.
func SequenceOf(tb testing.TB, c *natsconf.Conn, stream, subject string) (sequence uint64) {
	tb.Helper()
	Await(tb, "a leader of "+stream, func() bool {
		m, err := c.Last(tb.Context(), stream, subject)
		if m != nil {
			sequence = m.Sequence
		}
		return err == nil || errors.Is(err, natsconf.ErrNotFound)
	})
	return sequence
}

// Writer runs a writer of the stream until the test ends.
func Writer(tb testing.TB, c *natsconf.Conn, stream string) *natsconf.Writer {
	tb.Helper()
	w := natsconf.NewWriter(c, stream)
	if stream == topology.StreamUsage || stream == topology.StreamRetries {
		w = natsconf.NewSingleWriter(c, stream)
	}
	Serve(tb, w)
	return w
}
