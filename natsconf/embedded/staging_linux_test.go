package embedded_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/nats-io/nats.go"

	"verifyd/natsconf"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
)

// publishMany uses so many concurrent callers that they share batches.
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
	return filepath.Join(dir, "nats", "jetstream", "$G", "streams", topology.StreamCompletions, "batches")
}

// Batches are staged in a folder in memory that only the user can access, also after restarts, and nothing of
// it is left behind.
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
		publishMany(t, natstest.Writer(t, conn, topology.StreamCompletions), name)
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

// What a killed process had staged is removed by the next start; what another process uses, or what others
// created, stays.
func TestOnlyLeftoversAreRemoved(t *testing.T) {
	natstest.NeedsEmbedded(t, "where it stages batches")
	folder := func() string {
		f, err := os.MkdirTemp("/dev/shm", "verifyd-") //nolint:usetesting // it must exist
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

// What others have put into the shared folder delays no start, is not opened, and stays: pipes, links,
// folders of another user, and folders that others may write to.
func TestStagingOpensNothingOfOthers(t *testing.T) {
	natstest.NeedsEmbedded(t, "where it stages batches")
	elsewhere := t.TempDir()
	if err := os.WriteFile(filepath.Join(elsewhere, "lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	lock := func(f string) error { return os.WriteFile(filepath.Join(f, "lock"), nil, 0o600) }
	kinds := map[string]func(folder string) error{
		"a pipe for a lock": func(f string) error {
			return syscall.Mkfifo(filepath.Join(f, "lock"), 0o600)
		},
		"a link for a lock": func(f string) error {
			return os.Symlink(filepath.Join(elsewhere, "lock"), filepath.Join(f, "lock"))
		},
		"a folder for a lock": func(f string) error { return os.Mkdir(filepath.Join(f, "lock"), 0o700) },
		"a link for a folder": func(f string) error {
			return errors.Join(os.Remove(f), os.Symlink(elsewhere, f))
		},
		"a pipe for a folder": func(f string) error {
			return errors.Join(os.Remove(f), syscall.Mkfifo(f, 0o600))
		},
		"a folder open to all": func(f string) error { return errors.Join(lock(f), os.Chmod(f, 0o777)) },
		"a lock open to others": func(f string) error {
			return errors.Join(lock(f), os.Chmod(filepath.Join(f, "lock"), 0o622))
		},
	}
	if os.Geteuid() == 0 {
		kinds["another user's"] = func(f string) error {
			return errors.Join(lock(f), os.Chown(f, 65534, 65534))
		}
		kinds["another user's lock"] = func(f string) error {
			return errors.Join(lock(f), os.Chown(filepath.Join(f, "lock"), 65534, 65534))
		}
	} else {
		t.Log("not run as root: nothing here is another user's")
	}
	made := map[string]string{}
	for kind, plant := range kinds {
		f, err := os.MkdirTemp("/dev/shm", "verifyd-") //nolint:usetesting // it must exist
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(f) })
		if err := plant(f); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		made[kind] = f
	}
	natstest.Start(t)
	for kind, f := range made {
		if _, err := os.Lstat(f); err != nil {
			t.Errorf("%s was taken away: %v", kind, err)
		}
	}
	if _, err := os.Stat(filepath.Join(elsewhere, "lock")); err != nil {
		t.Errorf("what a link led to was taken away: %v", err)
	}
}

// A link to what somebody else has created is removed before the server would read batches from there.
func TestStagingOfOthersIsNotRead(t *testing.T) {
	natstest.NeedsEmbedded(t, "where it stages batches")
	dir := t.TempDir()
	conn, stop := natstest.StartIn(t, dir)
	publishMany(t, natstest.Writer(t, conn, topology.StreamCompletions), "a")
	stop()
	others := filepath.Join(t.TempDir(), "verifyd-1")
	trap := filepath.Join(others, topology.StreamCompletions)
	if err := errors.Join(os.MkdirAll(trap, 0o700), os.Chmod(others, 0o777),
		os.WriteFile(filepath.Join(trap, "trap"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	_ = os.RemoveAll(batchesOf(dir))
	if err := os.Symlink(trap, batchesOf(dir)); err != nil {
		t.Fatal(err)
	}
	e, err := embedded.Open(embedded.Options{DataDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	embedded.Sever(e)
	if target, err := os.Readlink(batchesOf(dir)); err == nil {
		t.Errorf("batches would be taken from %s", target)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(trap, "trap")); err != nil {
		t.Errorf("what is another's was taken away: %v", err)
	}
	_, stop = natstest.StartIn(t, dir)
	stop()
}

// Whatever is in the place where a stream's batches are staged, a start is not delayed by it, does not follow
// it, does not touch its target, and batches are staged and stored.
func TestForeignStagingStopsNothing(t *testing.T) {
	natstest.NeedsEmbedded(t, "where it stages batches")
	elsewhere := func(t *testing.T, mode os.FileMode) (folder, kept string) {
		folder = filepath.Join(t.TempDir(), topology.StreamCompletions)
		kept = filepath.Join(folder, "kept")
		if err := errors.Join(os.Mkdir(folder, 0o700), os.WriteFile(kept, nil, 0o600),
			os.Chmod(filepath.Dir(folder), mode)); err != nil {
			t.Fatal(err)
		}
		return folder, kept
	}
	linkTo := func(mode os.FileMode) func(*testing.T, string) string {
		return func(t *testing.T, place string) string {
			folder, kept := elsewhere(t, mode)
			if err := os.Symlink(folder, place); err != nil {
				t.Fatal(err)
			}
			return kept
		}
	}
	nothingElse := func(put func(place string) error) func(*testing.T, string) string {
		return func(t *testing.T, place string) string {
			if err := put(place); err != nil {
				t.Fatal(err)
			}
			return ""
		}
	}
	kinds := map[string]func(t *testing.T, place string) (kept string){
		"a link to a folder of one's own": linkTo(0o700),
		"a link to a folder open to all":  linkTo(0o777),
		"a link from where it stands": func(t *testing.T, place string) string {
			folder, kept := elsewhere(t, 0o700)
			relative, err := filepath.Rel(filepath.Dir(place), folder)
			if err := errors.Join(err, os.Symlink(relative, place)); err != nil {
				t.Fatal(err)
			}
			return kept
		},
		"a link to a pipe": func(t *testing.T, place string) string {
			pipe := filepath.Join(t.TempDir(), "pipe")
			if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.Symlink(pipe, place)); err != nil {
				t.Fatal(err)
			}
			return pipe
		},
		"a link to nothing": nothingElse(func(place string) error {
			return os.Symlink(place+"/no/such", place)
		}),
		"a link to itself": nothingElse(func(place string) error { return os.Symlink(place, place) }),
		"a pipe":           nothingElse(func(place string) error { return syscall.Mkfifo(place, 0o600) }),
		"a file":           nothingElse(func(place string) error { return os.WriteFile(place, nil, 0o600) }),
	}
	if os.Geteuid() == 0 {
		kinds["a link to another user's folder"] = func(t *testing.T, place string) string {
			kept := linkTo(0o755)(t, place)
			for _, name := range []string{kept, filepath.Dir(kept), filepath.Dir(filepath.Dir(kept))} {
				if err := os.Chown(name, 65534, 65534); err != nil {
					t.Fatal(err)
				}
			}
			return kept
		}
	}
	dir := t.TempDir()
	_, stop := natstest.StartIn(t, dir)
	stop()
	n := 0
	for kind, plant := range kinds {
		n++
		t.Run(kind, func(t *testing.T) {
			if err := os.RemoveAll(batchesOf(dir)); err != nil {
				t.Fatal(err)
			}
			kept := plant(t, batchesOf(dir))
			conn, stop := natstest.StartIn(t, dir)
			defer stop()
			publishMany(t, natstest.Writer(t, conn, topology.StreamCompletions), fmt.Sprint(n, "x"))
			if target, err := os.Readlink(batchesOf(dir)); err != nil ||
				!strings.HasPrefix(target, "/dev/shm/verifyd-") {
				t.Errorf("batches are staged at %q, %v", target, err)
			}
			if kept == "" {
				return
			}
			if _, err := os.Lstat(kept); err != nil {
				t.Errorf("what it leads to was taken away: %v", err)
			}
			if left, err := os.ReadDir(filepath.Dir(kept)); err != nil || len(left) != 1 {
				t.Errorf("something was put where it leads to: %v, %v", left, err)
			}
		})
	}
}

// If the staging area cannot be redirected to memory, batches are stored anyway.
func TestBatchesAreStoredWithoutMemory(t *testing.T) {
	dir := t.TempDir()
	e, conn, _ := natstest.StartServer(t, embedded.Options{DataDir: dir})
	if err := os.MkdirAll(filepath.Join(batchesOf(dir), "under way"), 0o700); err != nil {
		t.Fatal(err)
	}
	e.StageInMemory()
	if _, err := os.Readlink(batchesOf(dir)); err == nil {
		t.Fatal("a folder in use was replaced")
	}
	publishMany(t, natstest.Writer(t, conn, topology.StreamCompletions), "a")
}
