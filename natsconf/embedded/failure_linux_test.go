package embedded_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
)

// The disk fails while a batch is written. What the server still has of it in memory must not be read: no
// process may act on a write that never reached the disk.
func TestWritesOfAFailedStoreAreNotReadBack(t *testing.T) {
	disk := ownDisk(t)
	e, conn, _ := natstest.StartServer(t, embedded.Options{DataDir: disk.At})
	e.StageInMemory() // a batch that cannot be staged is refused as a whole
	w := natsconf.NewWriter(conn, topology.StreamCompletions)
	natstest.Serve(t, w)
	if _, err := w.Publish(t.Context(), claim("before")); err != nil {
		t.Fatal(err)
	}

	disk.FailSyncs(t)
	names := []string{"a", "b", "c", "d"}
	var batch []*nats.Msg
	for _, name := range names {
		batch = append(batch, claim(name))
	}
	err := conn.PublishBatch(t.Context(), topology.StreamCompletions, batch...)
	// The store's witness, which is written periodically, may meet the failure first: then nothing is sent.
	refused := errors.Is(err, natsconf.ErrUnavailable) && strings.Contains(err.Error(), "witness")
	if !errors.Is(err, natsconf.ErrUncertain) && !refused {
		t.Errorf("a batch that could not be synced: %v", err)
	}
	if _, err := w.Publish(t.Context(), claim("e")); !errors.Is(err, natsconf.ErrUnavailable) {
		t.Errorf("a message after that: %v", err)
	}
	for _, name := range append(names, "before") {
		if m, err := conn.Last(t.Context(), topology.StreamCompletions, "claim."+name+".1"); !errors.Is(err,
			natsconf.ErrUnavailable) {
			t.Errorf("claim %s is read back from a failed store: %v, %v", name, m, err)
		}
	}
	if err := e.Failure(); err == nil || !strings.Contains(err.Error(), "failed to write to its disk") {
		t.Errorf("the failure reads %v", err)
	}
	<-e.Failed()
}

// The filesystem aborts its journal when a file outside of the store is synced. Nothing was written to the
// store, which detects that when it is used.
func TestJournalGivenUpIsAFailure(t *testing.T) {
	disk := ownDisk(t)
	e := open(t, disk.At)
	other, err := os.Create(filepath.Join(disk.At, "other"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	if err := other.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := e.Failure(); err != nil {
		t.Fatalf("of a filesystem that is well: %v", err)
	}
	disk.FailSyncs(t)
	if err := errors.Join(other.Chmod(0o640), other.Sync()); err == nil {
		t.Fatal("the journal was written to a disk that takes nothing")
	}
	if err := e.Failure(); !errors.Is(err, syscall.EROFS) {
		t.Errorf("after the journal was given up: %v", err)
	}
}

// ownDisk makes a disk for a store.
func ownDisk(t *testing.T) *natstest.Disk {
	t.Helper()
	t.Parallel()
	natstest.NeedsEmbedded(t, "the disk under its store")
	return natstest.NewDisk(t, filepath.Join(t.TempDir(), "store"))
}

func claim(name string) *nats.Msg {
	return &nats.Msg{
		Subject: "claim." + name + ".1", Data: []byte("{}"), Header: nats.Header{
			jetstream.ExpectedLastSubjSeqHeader: {"0"},
		},
	}
}
