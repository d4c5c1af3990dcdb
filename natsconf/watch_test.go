package natsconf_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"verifyd/natsconf"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
)

// awaitEntry takes the next entry of a watch; nil: everything has been received.
func awaitEntry(t *testing.T, w *natsconf.Watch) *natsconf.Entry {
	t.Helper()
	select {
	case e, ok := <-w.Updates():
		if !ok {
			t.Fatal("the watch has ended:", w.Err())
		}
		return e
	case <-time.After(natstest.TestTimeout):
		t.Fatal("nothing comes")
	}
	return nil
}

// awaitAll takes what comes before the nil.
func awaitAll(t *testing.T, w *natsconf.Watch) (all []string) {
	t.Helper()
	for e := awaitEntry(t, w); e != nil; e = awaitEntry(t, w) {
		all = append(all, e.Key+"="+string(e.Value))
	}
	return all
}

// Each change arrives, in order and once, without a consumer: nothing of a watch is on a server that may
// vanish.
func TestWatchNeedsNoConsumer(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	put := func(key, value string) {
		t.Helper()
		natstest.Publish(t, conn, topology.BucketSubject(topology.BucketKeys, key), []byte(value))
	}
	remove := func(key string) {
		t.Helper()
		natstest.Publish(t, conn, topology.BucketSubject(topology.BucketKeys, key), nil, deleted)
	}
	put("a", "1")
	put("a", "2")
	put("gone", "1")
	remove("gone")
	var fresh natsconf.Freshness
	w := conn.Watch(t.Context(), topology.BucketKeys, ">", &fresh)
	defer w.Close()
	if all := awaitAll(t, w); !slices.Equal(all, []string{"a=2"}) {
		t.Errorf("before the nil come %v, want a=2", all)
	}
	for round := range 3 {
		natstest.AwaitConsumers(t, conn, topology.BucketStream(topology.BucketKeys), 0)
		put("b", "1")
		remove("b")
		for i := range 300 { // many between two polls
			put("c", strconv.Itoa(i))
		}
		put("a", "3")
		e := awaitEntry(t, w)
		for last := uint64(0); e.Key != "a"; e = awaitEntry(t, w) {
			if e.Revision <= last {
				t.Errorf("round %d: revision %d comes behind %d", round, e.Revision, last)
			}
			last = e.Revision
		}
		if string(e.Value) != "3" {
			t.Errorf("round %d: a=%s comes, want a=3", round, e.Value)
		}
	}
	natstest.Await(t, "a watch that has seen everything is fresh", func() bool {
		return fresh.StaleSince().IsZero()
	})
}

// The server does not answer any more. The watch is stale, and closing it does not wait for the server, which
// is still silent when nothing of the watch is left.
func TestWatchOfASilentServer(t *testing.T) {
	natstest.NeedsEmbedded(t, "its endpoint")
	t.Parallel()
	dir := t.TempDir()
	natstest.StartIn(t, dir)
	end, err := embedded.ReadEndpoint(dir)
	if err != nil {
		t.Fatal(err)
	}
	var silent atomic.Bool
	g := natstest.NewGate(t, strings.TrimPrefix(end.URL, "nats://"), func() func(bool) bool {
		return func(bool) bool { return !silent.Load() }
	})
	conn, err := natsconf.Connect(t.Context(), natsconf.ConnectOptions{
		URL: "nats://" + g.Addr().String(), User: end.User, Password: end.Password, Log: zerolog.Nop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	natstest.Ensure(t, conn)
	var fresh natsconf.Freshness
	w := conn.Watch(t.Context(), topology.BucketKeys, ">", &fresh)
	awaitAll(t, w)
	natstest.Await(t, "a watch that has seen everything is fresh", func() bool {
		return fresh.StaleSince().IsZero()
	})
	silent.Store(true)
	natstest.Await(t, "a watch whose server is silent is stale", func() bool {
		return !fresh.StaleSince().IsZero()
	})
	closing, closed := time.Now(), make(chan struct{})
	go func() { defer close(closed); w.Close() }()
	natstest.Receive(t, "a watch whose server is silent is closed", closed)
	t.Logf("figures: the watch of a silent server is closed after %s", time.Since(closing))
	if _, open := <-w.Updates(); open || !errors.Is(w.Err(), context.Canceled) {
		t.Errorf("after Close the watch is open (%t), with the error %v", open, w.Err())
	}
}

// A bucket that has lost what was seen in it ends the watch: its content has to be read again.
func TestWatchOfABucketThatWentBackEnds(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	natstest.Publish(t, conn, topology.BucketSubject(topology.BucketKeys, "a"), []byte("1"))
	var fresh natsconf.Freshness
	w := conn.Watch(t.Context(), topology.BucketKeys, ">", &fresh)
	defer w.Close()
	awaitEntry(t, w)
	awaitEntry(t, w)
	if err := conn.Purge(t.Context(), topology.BucketStream(topology.BucketKeys), ">"); err != nil {
		t.Fatal(err)
	}
	select {
	case e, ok := <-w.Updates():
		if ok {
			t.Fatalf("an entry comes: %v", e)
		}
	case <-time.After(natstest.TestTimeout):
		t.Fatal("the watch goes on")
	}
	if w.Err() == nil || fresh.StaleSince().IsZero() {
		t.Errorf("the watch ended with %v and is fresh", w.Err())
	}
}

// The newest message of a bucket is gone: the ones before it are everything.
func TestWatchOfABucketWithoutItsNewestMessage(t *testing.T) {
	natstest.NeedsEmbedded(t,
		"a server that is behind may still have the newest message, and then the watch ends")
	t.Parallel()
	conn := natstest.Start(t)
	for _, key := range []string{"a", "b"} {
		natstest.Publish(t, conn, topology.BucketSubject(topology.BucketKeys, key), []byte("1"))
	}
	if err := conn.Purge(t.Context(), topology.BucketStream(topology.BucketKeys),
		topology.BucketSubject(topology.BucketKeys, "b")); err != nil {
		t.Fatal(err)
	}
	var fresh natsconf.Freshness
	w := conn.Watch(t.Context(), topology.BucketKeys, ">", &fresh)
	defer w.Close()
	if all := awaitAll(t, w); !slices.Equal(all, []string{"a=1"}) {
		t.Errorf("before the nil come %v, want a=1", all)
	}
	for range 3 { // polls
		before := fresh.SeenUntil()
		natstest.Await(t, "everything has been seen once more", func() bool {
			return fresh.SeenUntil().After(before)
		})
	}
	select {
	case e := <-w.Updates():
		t.Errorf("%v comes, or the watch has ended: %v", e, w.Err())
	default:
	}
}
