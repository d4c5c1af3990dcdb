package natsconf_test

import (
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
)

// awaitEntry takes the next entry of a watch; nil: the word that everything has come.
func awaitEntry(t *testing.T, w *natsconf.Watch) jetstream.KeyValueEntry {
	t.Helper()
	select {
	case e, ok := <-w.Updates():
		if !ok {
			t.Fatal("the watch has ended:", w.Err())
		}
		return e
	case <-time.After(natstest.LastResort):
		t.Fatal("nothing comes")
	}
	return nil
}

// awaitAll takes what comes before the word that everything has come.
func awaitAll(t *testing.T, w *natsconf.Watch) (all []string) {
	t.Helper()
	for e := awaitEntry(t, w); e != nil; e = awaitEntry(t, w) {
		all = append(all, e.Key()+"="+string(e.Value()))
	}
	return all
}

// feedsOf gives the consumers that feed the watches of a bucket.
func feedsOf(t *testing.T, conn *natsconf.Conn, bucket string) []string {
	t.Helper()
	s, err := conn.JS.Stream(t.Context(), natsconf.BucketStream(bucket))
	if err != nil {
		t.Fatal(err)
	}
	list := s.ConsumerNames(t.Context())
	names := slices.Collect(func(yield func(string) bool) {
		for name := range list.Name() {
			if !yield(name) {
				return
			}
		}
	})
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	return names
}

// cutFeeds deletes consumers of a bucket, of which who reads from them is told nothing.
func cutFeeds(t *testing.T, conn *natsconf.Conn, bucket string, names []string) {
	t.Helper()
	for _, name := range names {
		if err := conn.JS.DeleteConsumer(t.Context(), natsconf.BucketStream(bucket), name); err != nil {
			t.Fatal(err)
		}
	}
}

// What feeds a watch is gone, and the client's library does not know: each change comes all the same, in order and once, and another feed
// is begun.
func TestWatchOutlivesItsFeed(t *testing.T) {
	conn := natstest.Start(t)
	kv, err := conn.JS.KeyValue(t.Context(), natsconf.BucketKeys)
	if err != nil {
		t.Fatal(err)
	}
	put := func(key, value string) {
		t.Helper()
		if _, err := kv.Put(t.Context(), key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	put("a", "1")
	put("a", "2")
	var sight natsconf.Sight
	w := conn.Watch(t.Context(), natsconf.BucketKeys, ">", &sight)
	defer w.Close()
	// Of three servers the one that feeds the watch may be behind: the newest that it has is an older one then.
	all, behind := awaitAll(t, w), []string{"a=1", "a=2"}
	if !slices.Equal(all, behind[1:]) && (!natstest.OnCluster() || !slices.Equal(all, behind)) {
		t.Errorf("before the word that this was all come %v, want a=2", all)
	}
	for round := range 3 {
		old := feedsOf(t, conn, natsconf.BucketKeys)
		cutFeeds(t, conn, natsconf.BucketKeys, old)
		put("b", "1")
		if err := kv.Delete(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
		put("a", "3")
		for _, want := range []string{"b=1", "a=3"} {
			if e := awaitEntry(t, w); e.Key()+"="+string(e.Value()) != want {
				t.Errorf("round %d: %s=%s comes, want %s", round, e.Key(), e.Value(), want)
			}
		}
		for deadline := time.Now().Add(natstest.LastResort); slices.Equal(old, feedsOf(t, conn, natsconf.BucketKeys)) || len(feedsOf(t, conn, natsconf.BucketKeys)) != 1; {
			if time.Now().After(deadline) {
				t.Fatal("no other feed was begun")
			}
		}
	}
	natstest.Await(t, "a watch that has seen everything is not blind", func() bool { return sight.BlindSince().IsZero() })
}

// A bucket that has lost what was seen in it ends the watch: what is there has to be read anew.
func TestWatchOfABucketThatWentBackEnds(t *testing.T) {
	conn := natstest.Start(t)
	kv, err := conn.JS.KeyValue(t.Context(), natsconf.BucketKeys)
	if err == nil {
		_, err = kv.Put(t.Context(), "a", []byte("1"))
	}
	if err != nil {
		t.Fatal(err)
	}
	var sight natsconf.Sight
	w := conn.Watch(t.Context(), natsconf.BucketKeys, ">", &sight)
	defer w.Close()
	awaitEntry(t, w)
	awaitEntry(t, w)
	if err := conn.Purge(t.Context(), natsconf.BucketStream(natsconf.BucketKeys), ">"); err != nil {
		t.Fatal(err)
	}
	select {
	case e, ok := <-w.Updates():
		if ok {
			t.Fatalf("an entry comes: %v", e)
		}
	case <-time.After(natstest.LastResort):
		t.Fatal("the watch goes on")
	}
	if w.Err() == nil || sight.BlindSince().IsZero() {
		t.Errorf("the watch ended with %v and sees everything", w.Err())
	}
}

// Nobody answers that the old feed is deleted, as while the servers elect who places consumers. The client's library waits 5 s for that:
// changes do not, nor does the end of the watch.
func TestWatchDoesNotWaitForTheEndOfAFeed(t *testing.T) {
	t.Parallel()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
		Users: []*server.User{
			{Username: "all", Password: "p"},
			{Username: "reader", Password: "p", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"$JS.API.CONSUMER.DELETE.>"}}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(natstest.LastResort) {
		t.Fatal("the server does not start")
	}
	conn := natstest.ConnectTo(t, "nats://all:p@"+s.Addr().String())
	natstest.Ensure(t, conn)
	reader := natstest.ConnectTo(t, "nats://reader:p@"+s.Addr().String())
	kv, err := conn.JS.KeyValue(t.Context(), natsconf.BucketKeys)
	if err != nil {
		t.Fatal(err)
	}
	var sight natsconf.Sight
	w := reader.Watch(t.Context(), natsconf.BucketKeys, ">", &sight)
	defer w.Close()
	awaitEntry(t, w)
	const late = 3 * time.Second // well under those 5 s
	cut := feedsOf(t, conn, natsconf.BucketKeys)
	cutFeeds(t, conn, natsconf.BucketKeys, cut)
	for deadline := time.Now().Add(natstest.LastResort); len(feedsOf(t, conn, natsconf.BucketKeys)) == 0; {
		put := time.Now()
		if _, err := kv.Put(t.Context(), "a", []byte("1")); err != nil {
			t.Fatal(err)
		}
		awaitEntry(t, w)
		if took := time.Since(put); took > late {
			t.Errorf("a change is seen %s after its acknowledgement", took)
		}
		if time.Now().After(deadline) {
			t.Fatal("no other feed was begun")
		}
	}
	closing := time.Now()
	w.Close()
	if took := time.Since(closing); took > late {
		t.Errorf("the watch is closed after %s", took)
	}
}

// Every feed falls behind at once. Changes come all the same, and a new feed is given time before another takes its place: so the time that
// has passed bounds how many there were, however long a change takes.
func TestWatchGivesANewFeedTime(t *testing.T) {
	t.Parallel()
	// Ten looks lie 200 ms apart. Three may come early: the first, one for which the ticker was kept waiting, and one at the feed's beginning.
	const least = 1400 * time.Millisecond
	conn := natstest.Start(t)
	kv, err := conn.JS.KeyValue(t.Context(), natsconf.BucketKeys)
	if err != nil {
		t.Fatal(err)
	}
	var sight natsconf.Sight
	began := time.Now()
	w := conn.Watch(t.Context(), natsconf.BucketKeys, ">", &sight)
	defer w.Close()
	awaitEntry(t, w)
	feeds := 0
	for range 16 {
		names := feedsOf(t, conn, natsconf.BucketKeys)
		feeds += len(names)
		cutFeeds(t, conn, natsconf.BucketKeys, names)
		if _, err := kv.Put(t.Context(), "a", []byte("1")); err != nil {
			t.Fatal(err)
		}
		awaitEntry(t, w)
	}
	if took := time.Since(began); feeds > 1+int(took/least) { // one at each change that comes late, otherwise
		t.Errorf("%d feeds were begun for 16 changes within %s", feeds, took)
	}
}

// The newest message of a bucket is gone: what is before it is everything there is.
func TestWatchOfABucketWithoutItsNewestMessage(t *testing.T) {
	natstest.NeedsEmbedded(t, "a server that is behind may still have the newest message, and then the watch ends")
	t.Parallel()
	conn := natstest.Start(t)
	kv, err := conn.JS.KeyValue(t.Context(), natsconf.BucketKeys)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Put(t.Context(), "a", []byte("1")); err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Put(t.Context(), "b", []byte("1")); err != nil {
		t.Fatal(err)
	}
	if err := conn.Purge(t.Context(), natsconf.BucketStream(natsconf.BucketKeys), natsconf.BucketSubject(natsconf.BucketKeys, "b")); err != nil {
		t.Fatal(err)
	}
	var sight natsconf.Sight
	w := conn.Watch(t.Context(), natsconf.BucketKeys, ">", &sight)
	defer w.Close()
	if all := awaitAll(t, w); !slices.Equal(all, []string{"a=1"}) {
		t.Errorf("before the word that this was all come %v, want a=1", all)
	}
	select {
	case e := <-w.Updates():
		t.Errorf("%v comes, or the watch has ended: %v", e, w.Err())
	case <-time.After(time.Second): // some looks later
	}
}
