// Package natstest gives tests a real embedded JetStream with the whole topology, on a folder of its own, synced as in
// production. There is no mock of the broker in this project.
package natstest

import (
	"context"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"verifyd/natsconf"
)

// Start runs an embedded server with the topology until the test ends, and gives a connection to it.
func Start(tb testing.TB) *natsconf.Conn {
	tb.Helper()
	conn, _ := StartIn(tb, tb.TempDir())
	return conn
}

// StartIn is Start on a given data directory. stop ends everything early, for tests that start again on the same directory.
func StartIn(tb testing.TB, dir string) (conn *natsconf.Conn, stop func()) {
	tb.Helper()
	e, err := natsconf.OpenEmbedded(natsconf.EmbeddedOptions{DataDir: dir, Log: zerolog.Nop()})
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
	conn, err = natsconf.Connect(ctx, natsconf.ConnectOptions{Embedded: e, Name: tb.Name(), Log: zerolog.Nop()})
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

// Ensure gives a server the topology.
func Ensure(tb testing.TB, c *natsconf.Conn) {
	tb.Helper()
	e := natsconf.Ensurer{Conn: c, Topology: natsconf.NewTopology(natsconf.TopologyOptions{Embedded: true})}
	if err := e.EnsureAtBoot(tb.Context()); err != nil {
		tb.Fatal(err)
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

// Writer runs a writer of the stream until the test ends.
func Writer(tb testing.TB, c *natsconf.Conn, stream string) *natsconf.Writer {
	tb.Helper()
	w := natsconf.NewWriter(c, stream)
	if stream == natsconf.StreamUsage || stream == natsconf.StreamRetries {
		w = natsconf.NewSingleWriter(c, stream)
	}
	Serve(tb, w)
	return w
}
