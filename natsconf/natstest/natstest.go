// Package natstest provides tests with a real embedded JetStream with the whole topology, on a folder of its
// own, synced as in production. There is no mock of the broker in this project.
package natstest

import (
	"context"
	"flag"
	"net/url"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"verifyd/natsconf"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/provision"
	"verifyd/natsconf/topology"
)

// Start runs an embedded server with the topology until the test ends, and returns a connection to it.
func Start(tb testing.TB) *natsconf.Conn {
	tb.Helper()
	conn, _ := StartIn(tb, tb.TempDir())
	return conn
}

// StartCluster is Start on three servers, whatever the switch says.
func StartCluster(tb testing.TB) *natsconf.Conn {
	tb.Helper()
	conn, _ := joinIn(tb, tb.TempDir())
	return conn
}

// StartIn is Start on a given data directory. stop ends everything early, for tests that start again on the
// same directory.
func StartIn(tb testing.TB, dir string) (conn *natsconf.Conn, stop func()) {
	tb.Helper()
	Clock(tb)
	if OnCluster() {
		return joinIn(tb, dir)
	}
	e, err := embedded.Open(embedded.Options{DataDir: dir, Log: zerolog.Nop()})
	if err != nil {
		tb.Fatal(err)
	}
	stopServer := Serve(tb, e)
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
	Ensure(tb, conn)
	e.StageInMemory()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		conn.Close()
		stopServer()
		if err := e.Close(); err != nil {
			tb.Error(err)
		}
	}
	tb.Cleanup(stop)
	return conn, stop
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
	<-e.Ready()
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

// Ensure returns a server the topology, on a cluster with as many copies as it keeps.
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

// Serve runs an actor until the test ends or stop is called, which waits until it has returned.
func Serve(tb testing.TB, actor interface {
	Serve(ctx context.Context) error
}) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := actor.Serve(ctx); err != nil && ctx.Err() == nil {
			tb.Errorf("%v: %v", actor, err)
		}
	}()
	stop = func() { cancel(); <-done }
	tb.Cleanup(stop)
	return stop
}

// Parallel lets so many of the tests that are marked as parallel run at once, however few processors there
// are: they wait for disks, elections and time-outs, and hardly compute. On a cluster it lets half as many
// run: there each test's streams are raft groups of three. The fuzzer's workers compute, and stay as many as
// there are processors. Garbage is collected at five times what lives, unless GOGC says otherwise: at twice
// it took a tenth of what tests compute. It is called in TestMain.
func Parallel(tests int) {
	flag.Parse()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	if f := flag.Lookup("test.fuzz"); f != nil && f.Value.String() != "" {
		return
	}
	if OnCluster() {
		tests /= 2
	}
	if err := flag.Set("test.parallel", strconv.Itoa(tests)); err != nil {
		panic(err)
	}
}

// TestTimeout bounds a test's wait for what takes moments: on a machine with other work they may be long,
// and a test that is stuck ends.
const TestTimeout = 2 * time.Minute

// awaitLook is how long Await looks away: watching without a pause would take the processor from what is
// awaited.
const awaitLook = 5 * time.Millisecond

// Await waits until something is so; what names it for the failure. It is called from the test's own
// goroutine.
func Await(tb testing.TB, what string, is func() bool) {
	tb.Helper()
	look := time.NewTicker(awaitLook)
	defer look.Stop()
	for late := time.After(TestTimeout); !is(); {
		select {
		case <-look.C:
		case <-late:
			tb.Fatalf("not within %s: %s", TestTimeout, what)
		}
	}
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
