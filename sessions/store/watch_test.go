package store_test

import (
	"testing"
	"time"

	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
	"verifyd/sessions/store"
)

func changes(t *testing.T, f *store.Follower) {
	t.Helper()
	select {
	case <-f.Changed():
	case <-time.After(natstest.TestTimeout):
		t.Fatal("nothing was told")
	}
}

// Whatever ends a reading, followers are notified, and later messages are reported again.
func TestWatchContinuesWhenItsReadingIsTaken(t *testing.T) {
	t.Parallel()
	h := start(t)
	watch := store.NewWatch(h.conn)
	natstest.Serve(t, watch)
	s, _ := h.create(t)
	f, err := watch.Follow(t.Context(), s.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	changes(t, f) // the reading has begun
	stream, err := h.conn.JS.Stream(t.Context(), topology.StreamCompletions)
	if err != nil {
		t.Fatal(err)
	}
	// A consumer reports its end to those whose requests it knows.
	var reading string
	natstest.Await(t, "the reading asks for facts", func() bool {
		for info := range stream.ListConsumers(t.Context()).Info() {
			if info.Config.HeadersOnly && info.NumWaiting > 0 {
				reading = info.Name
			}
		}
		return reading != ""
	})
	if err := stream.DeleteConsumer(t.Context(), reading); err != nil {
		t.Fatal(err)
	}
	changes(t, f)
	if _, err := h.store.Complete(t.Context(), s, verified); err != nil {
		t.Fatal(err)
	}
	changes(t, f)
}
