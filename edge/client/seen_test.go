package client_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"verifyd/edge/client"
)

func sighting(t *testing.T, m *client.MemorySeen, id string) client.Sighting {
	t.Helper()
	s, err := m.Begin(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func handle(t *testing.T, m *client.MemorySeen, id string) {
	t.Helper()
	if s := sighting(t, m, id); s != client.SeenNew {
		t.Fatalf("%s is %v", id, s)
	}
	if err := m.End(t.Context(), id, true); err != nil {
		t.Fatal(err)
	}
}

func TestMemorySeenForgetsByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := client.NewMemorySeen(time.Hour, 0)
		handle(t, m, "a")
		time.Sleep(time.Hour - time.Second) // of the bubble: it costs no time
		if s := sighting(t, m, "a"); s != client.SeenHandled {
			t.Errorf("within its time it is %v", s)
		}
		time.Sleep(2 * time.Second) // of the bubble as well
		if s := sighting(t, m, "a"); s != client.SeenNew {
			t.Errorf("after its time it is %v", s)
		}
	})
}

func TestMemorySeenForgetsTheOldestAndNoneUnderWay(t *testing.T) {
	m := client.NewMemorySeen(0, 3)
	if s := sighting(t, m, "under way"); s != client.SeenNew {
		t.Fatal(s)
	}
	for i := range 4 {
		handle(t, m, fmt.Sprint(i))
	}
	for id, want := range map[string]client.Sighting{
		"1": client.SeenHandled, "3": client.SeenHandled, "under way": client.SeenBusy, "0": client.SeenNew,
	} {
		if s := sighting(t, m, id); s != want {
			t.Errorf("%s is %v, want %v", id, s, want)
		}
	}
	if err := m.End(t.Context(), "nobody's", true); err == nil {
		t.Error("an id was ended that nobody began")
	}
}

func TestOfManyWhoBeginOneMay(t *testing.T) {
	m := client.NewMemorySeen(0, 0)
	var may atomic.Int32
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			if s, err := m.Begin(t.Context(), "a"); err == nil && s == client.SeenNew {
				may.Add(1)
			}
		})
	}
	if wg.Wait(); may.Load() != 1 {
		t.Errorf("%d may handle it", may.Load())
	}
}
