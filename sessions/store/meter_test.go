package store_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
	"verifyd/sessions/stats"
)

var midday = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// stored stops a meter at once, which stores what it has gathered.
func stored(t *testing.T, m *stats.Meter) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Serve(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func (h fixture) counted(t *testing.T, account string, day int) stats.UsageDay {
	t.Helper()
	u, err := h.store.Usage(t.Context(), account, midday)
	if err != nil || len(u.Days) != 30 {
		t.Fatalf("%d days, %v", len(u.Days), err)
	}
	return u.Days[day-1]
}

func TestMetersOfAllProcessesAddUp(t *testing.T) {
	t.Parallel()
	h := start(t)
	meters := []*stats.Meter{
		stats.NewMeter(natstest.Writer(t, h.conn, topology.StreamUsage)),
		stats.NewMeter(natstest.Writer(t, h.conn, topology.StreamUsage)),
	}
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			meters[i%2].Count("acc_a", false, stats.CountStarted, midday)
			meters[i%2].Count("acc_a", true, stats.CountVerified, midday.Add(-12*time.Hour))
			meters[i%2].Count("acc_ab", false, stats.CountStarted, midday)
			// the next month
			meters[i%2].Count("acc_a", false, stats.CountStarted, midday.Add(12*time.Hour))
		})
	}
	wg.Wait()
	for _, m := range meters {
		stored(t, m)
		stored(t, m) // nothing is counted twice
	}
	day := h.counted(t, "acc_a", 30)
	if !day.Day.Equal(midday.Truncate(24*time.Hour)) || day.Live[stats.CountStarted] != 40 ||
		day.Test[stats.CountVerified] != 40 ||
		len(day.Live)+len(day.Test) != 2 {
		t.Errorf("day = %+v", day)
	}
	if day := h.counted(t, "acc_a", 29); len(day.Live)+len(day.Test) != 0 {
		t.Errorf("the day before = %+v", day)
	}
}

func TestCountsThatCannotBeStoredAreKept(t *testing.T) {
	t.Parallel()
	h := start(t)
	writer := natsconf.NewSingleWriter(h.conn, topology.StreamUsage) // it does not run yet
	m := stats.NewMeter(writer)
	m.Count("acc_a", false, stats.CountStarted, midday)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for {
		_, err := writer.Publish(gone, &nats.Msg{Subject: "nobody.listens"})
		if errors.Is(err, natsconf.ErrUnavailable) {
			break // its mailbox is full
		}
	}
	stored(t, m)
	m.Count("acc_a", false, stats.CountStarted, midday)
	natstest.Serve(t, writer)
	natstest.Await(t, "what could not be stored is there", func() bool {
		stored(t, m) // until the mailbox has room
		return h.counted(t, "acc_a", 30).Live[stats.CountStarted] == 2
	})
}

func BenchmarkMeterCount(b *testing.B) {
	m := stats.NewMeter(nil)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			m.Count("acc_a", false, stats.CountStarted, midday)
		}
	})
}
