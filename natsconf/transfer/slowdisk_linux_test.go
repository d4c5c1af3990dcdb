package transfer_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"verifyd/natsconf/embedded"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
	"verifyd/natsconf/transfer"
)

// The disk of the store that is filled is so slow that most of a page is not acknowledged in time, and that
// some of it is stored while the reads are under way that find out what is. The store is filled all the same,
// and holds nothing twice: neither facts, which go in batches, nor events and records of the audit, which go
// in a chain.
func TestFillOntoASlowDisk(t *testing.T) {
	t.Parallel()
	natstest.NeedsEmbedded(t, "the disk under its store")
	from := natstest.Start(t)
	fill(t, from, 0)
	for i := range 450 { // more than one page, and some time for the disk
		publish(t, from, fmt.Sprintf("session.sign_in.more_%d", i), "event")
	}
	disk := natstest.NewDisk(t, filepath.Join(t.TempDir(), "store"))
	_, to, _ := natstest.StartServer(t, embedded.Options{DataDir: disk.At})
	disk.Slow(t, 400*time.Millisecond) // a publish is not acknowledged after five seconds
	streams := []string{topology.StreamCompletions, topology.StreamEvents, topology.StreamAudit}
	var fills sync.WaitGroup
	for _, a := range assets() {
		if !slices.Contains(streams, a.Stream) {
			continue
		}
		fills.Go(func() {
			if err := transfer.Read(t.Context(), from, a, nil, 1, time.Time{},
				func(items []transfer.Item) error {
					_, err := transfer.Fill(t.Context(), to, a, items)
					return err
				}); err != nil {
				t.Error(err)
			}
			c, err := transfer.Compare(t.Context(), from, to, a, nil)
			if err != nil || !c.Equal() || c.To.Count == 0 {
				t.Errorf("%s: %d messages, and %d in the new store, %v", a.Stream, c.From.Count, c.To.Count,
					err)
			}
		})
	}
	fills.Wait()
}
