package natsconf_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/nats-io/nats.go"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
)

// publishMany has so many callers at once that they share batches.
func publishMany(t *testing.T, w *natsconf.Writer, name string) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			m := nats.NewMsg(fmt.Sprintf("completion.%s%d", name, i))
			m.Header.Set("Nats-Expected-Last-Subject-Sequence", "0")
			if _, err := w.Publish(t.Context(), m); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func batchesOf(dir string) string {
	return filepath.Join(dir, "nats", "jetstream", "$G", "streams", natsconf.StreamCompletions, "batches")
}

// Batches are staged in a folder in memory that is the user's alone, over restarts too, and nothing of it stays behind.
func TestBatchesAreStagedInMemory(t *testing.T) {
	natstest.NeedsEmbedded(t, "where it stages batches")
	dir := t.TempDir()
	var folders []string
	for _, name := range []string{"first", "second"} {
		conn, stop := natstest.StartIn(t, dir)
		target, err := os.Readlink(batchesOf(dir))
		if err != nil || !strings.HasPrefix(target, "/dev/shm/verifyd-") {
			t.Fatalf("batches are staged at %q, %v", target, err)
		}
		folder := filepath.Dir(target)
		folders = append(folders, folder)
		if i, err := os.Stat(folder); err != nil || i.Mode().Perm() != 0o700 {
			t.Errorf("%v, %v", i, err)
		}
		before := time.Now().Add(-time.Hour)
		if err := os.Chtimes(target, before, before); err != nil {
			t.Fatal(err)
		}
		publishMany(t, natstest.Writer(t, conn, natsconf.StreamCompletions), name)
		if i, err := os.Stat(target); err != nil || i.ModTime().Equal(before) {
			t.Errorf("no batch was staged there: %v, %v", i, err)
		}
		stop()
	}
	for _, folder := range folders {
		if _, err := os.Stat(folder); !os.IsNotExist(err) {
			t.Errorf("%s stays behind: %v", folder, err)
		}
	}
}

// What a killed process had staged is taken away by the next start; what another process uses, or no process of ours made, stays.
func TestOnlyLeftoversAreTakenAway(t *testing.T) {
	natstest.NeedsEmbedded(t, "where it stages batches")
	folder := func() string {
		f, err := os.MkdirTemp("/dev/shm", "verifyd-") //nolint:usetesting // it must be there
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(f) })
		return f
	}
	locked := func(f string) *flock.Flock {
		l := flock.New(filepath.Join(f, "lock"))
		if got, err := l.TryLock(); err != nil || !got {
			t.Fatal(err)
		}
		return l
	}
	left, used, bare := folder(), folder(), folder()
	if err := locked(left).Close(); err != nil { // as the system does when a process ends
		t.Fatal(err)
	}
	mine := locked(used)
	defer func() { _ = mine.Close() }()
	natstest.Start(t)
	for f, want := range map[string]bool{left: false, used: true, bare: true} {
		if _, err := os.Stat(f); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", f, err == nil, want)
		}
	}
}

// Where the staging area cannot be led to memory, batches are stored all the same.
func TestBatchesAreStoredWithoutMemory(t *testing.T) {
	dir := t.TempDir()
	e, err := natsconf.OpenEmbedded(natsconf.EmbeddedOptions{DataDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	stopServer := natstest.Serve(t, e)
	t.Cleanup(func() { stopServer(); _ = e.Close() })
	<-e.Ready()
	conn, err := natsconf.Connect(t.Context(), natsconf.ConnectOptions{Embedded: e})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	natstest.Ensure(t, conn)
	if err := os.MkdirAll(filepath.Join(batchesOf(dir), "under way"), 0o700); err != nil {
		t.Fatal(err)
	}
	e.StageInMemory()
	if _, err := os.Readlink(batchesOf(dir)); err == nil {
		t.Fatal("a folder in use was replaced")
	}
	publishMany(t, natstest.Writer(t, conn, natsconf.StreamCompletions), "a")
}
