package keyuse_test

import (
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"verifyd/edge/account/keyuse"
	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
)

type rig struct {
	conn *natsconf.Conn
	*keyuse.Reader
}

func start(t *testing.T) rig {
	t.Helper()
	conn := natstest.Start(t)
	return rig{conn, keyuse.NewReader(conn)}
}

func (h rig) useWrites(t *testing.T) uint64 {
	t.Helper()
	_, last, err := h.conn.Bounds(t.Context(), topology.BucketStream(topology.BucketKeyUses))
	if err != nil {
		t.Fatal(err)
	}
	return last
}

// Two edges see a key a thousand times within an hour: one message. The hour after: one more.
func TestUseIsWrittenOnceAnHour(t *testing.T) {
	t.Parallel()
	h := start(t)
	const key = "key_aaaaaaaaaaaaaaaa"
	edges := []*keyuse.Uses{keyuse.New(h.conn, zerolog.Nop()), keyuse.New(h.conn, zerolog.Nop())}
	for _, u := range edges {
		natstest.Serve(t, u)
	}
	began := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	see := func(at time.Time) {
		var wg sync.WaitGroup
		for i := range 1000 {
			wg.Go(func() { edges[i%2].RecordUse(key, at.Add(time.Duration(i)*time.Second)) })
		}
		wg.Wait()
	}
	used := func() time.Time {
		all, err := h.LastUsed(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		return all[key]
	}
	// each edge writes in turn, so that after these two both have written what was due
	marker := func(n int) {
		for i, u := range edges {
			name := fmt.Sprintf("key_marker%d%d", n, i)
			u.RecordUse(name, began)
			natstest.Await(t, "the marker is written", func() bool {
				all, err := h.LastUsed(t.Context(), name)
				return err == nil && !all[name].IsZero()
			})
		}
	}
	see(began)
	natstest.Await(t, "the use is written", func() bool { return !used().IsZero() })
	marker(1)
	if n := h.useWrites(t); n != 3 {
		t.Errorf("%d messages within the hour, want 1 and two markers", n)
	}
	if at := used(); at.Before(began) || at.Sub(began) > 1000*time.Second {
		t.Errorf("used at %s", at)
	}
	see(began.Add(90 * time.Minute))
	natstest.Await(t, "the next use is written", func() bool { return used().After(began.Add(time.Hour)) })
	marker(2)
	if n := h.useWrites(t); n != 6 {
		t.Errorf("%d messages after two hours", n)
	}
	if all, err := h.LastUsed(t.Context()); err != nil || len(all) != 5 || all[key] != used() {
		t.Errorf("all uses: %v, %v", all, err)
	}
}

// A restarted edge does not write again what is stored.
func TestRestartedEdgeWritesNoUseTwice(t *testing.T) {
	t.Parallel()
	h := start(t)
	now := time.Now()
	for range 3 {
		u := keyuse.New(h.conn, zerolog.Nop())
		stop := natstest.Serve(t, u)
		u.RecordUse("key_a", now)
		u.RecordUse("key_b", now)
		natstest.Await(t, "written", func() bool {
			all, err := h.LastUsed(t.Context())
			return err == nil && len(all) == 2
		})
		stop()
	}
	if n := h.useWrites(t); n != 2 {
		t.Errorf("%d messages", n)
	}
	if all, err := h.LastUsed(t.Context(), "key_c", "no.such >"); err != nil || len(all) != 0 {
		t.Errorf("keys that were never used: %v, %v", all, err)
	}
}

// The uses of many keys are read some at once, each as that of its key.
func TestUsesOfManyKeys(t *testing.T) {
	t.Parallel()
	h := start(t)
	u := keyuse.New(h.conn, zerolog.Nop())
	natstest.Serve(t, u)
	first := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	var ids []string
	want := map[string]time.Time{}
	for i := range 50 {
		id := fmt.Sprintf("key_%d", i)
		ids = append(ids, id)
		if i%3 != 0 { // the others were never used
			want[id] = first.Add(time.Duration(i) * time.Minute)
			u.RecordUse(id, want[id])
		}
	}
	natstest.Await(t, "all uses are written", func() bool {
		all, err := h.LastUsed(t.Context())
		return err == nil && len(all) == len(want)
	})
	got, err := h.LastUsed(t.Context(), ids...)
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
}

func BenchmarkRecordUse(b *testing.B) {
	u := keyuse.New(nil, zerolog.Nop())
	now := time.Now()
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			u.RecordUse("key_aaaaaaaaaaaaaaaa", now)
		}
	})
}
