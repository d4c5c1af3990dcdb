package sessions_test

import (
	"testing"
	"time"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/sessions"
)

func changes(t *testing.T, f *sessions.Follower) {
	t.Helper()
	select {
	case <-f.Changed():
	case <-time.After(20 * time.Second):
		t.Fatal("nothing was told")
	}
}

// Whatever ends a reading, those who follow are told to look, and what is stored afterwards is told again.
func TestWatchGoesOnWhenItsReadingIsTaken(t *testing.T) {
	h := start(t)
	watch := sessions.NewWatch(h.conn)
	natstest.Serve(t, watch)
	s, _ := h.create(t)
	f, err := watch.Follow(t.Context(), s.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	stream, err := h.conn.JS.Stream(t.Context(), natsconf.StreamCompletions)
	if err != nil {
		t.Fatal(err)
	}
	for info := range stream.ListConsumers(t.Context()).Info() {
		if info.Config.HeadersOnly {
			if err := stream.DeleteConsumer(t.Context(), info.Name); err != nil {
				t.Fatal(err)
			}
		}
	}
	changes(t, f)
	if _, err := h.store.Complete(t.Context(), s.ID, verified); err != nil {
		t.Fatal(err)
	}
	changes(t, f)
}
