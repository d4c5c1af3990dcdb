package natsconf

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"
	"golang.org/x/sys/unix"
)

const (
	// stagingRoot is the memory filesystem that Linux gives every process.
	stagingRoot = "/dev/shm"
	// stagingPrefix begins the names of our folders there.
	stagingPrefix = "verifyd-"
	// stagingLeast is the free memory below which batches are staged on disk; a batch is at most 2 MiB.
	stagingLeast = 32 << 20
)

// staging keeps the server's staging area for atomic batches in memory: a folder on the memory filesystem, to which the streams'
// "batches" folders lead. The server stages each batch as a store of its own, a handful of files that it syncs and deletes again
// right after, before it writes and syncs the messages themselves; on disk that is most of what a batch costs. What it would be good
// for is to complete a batch that a crash has cut: nobody has been told that such a batch was stored, and no message of ours depends
// on another of its batch.
//
// Where anything is not as expected, the server goes on staging on disk.
type staging struct {
	streams string // the folder of the streams
	folder  string // ours, on the memory filesystem; empty: none yet
	lock    *flock.Flock
}

func newStaging(storeDir string) *staging {
	return &staging{streams: filepath.Join(storeDir, "jetstream", "$G", "streams")}
}

// link leads the streams' staging to memory. It is called when nobody publishes batches yet, and may be repeated: a start of the
// server takes the links away.
func (s *staging) link(streams ...string) error {
	if err := s.open(); err != nil {
		return fmt.Errorf("stage batches in memory: %w", err)
	}
	for _, name := range streams {
		if err := s.linkStream(name); err != nil {
			return fmt.Errorf("stage batches of %s in memory: %w", name, err)
		}
	}
	return nil
}

// open makes our folder, readable by this user alone, and locks it for as long as this process lives.
func (s *staging) open() error {
	if s.folder != "" {
		return nil
	}
	sweepStaging()
	var fs unix.Statfs_t
	if err := unix.Statfs(stagingRoot, &fs); err != nil {
		return fmt.Errorf("%s: %w", stagingRoot, err)
	}
	if fs.Type != unix.TMPFS_MAGIC || fs.Bavail*uint64(fs.Bsize) < stagingLeast { //nolint:gosec // sizes of blocks are positive
		return fmt.Errorf("%s is not a memory filesystem with %d MiB free", stagingRoot, stagingLeast>>20)
	}
	folder, err := os.MkdirTemp(stagingRoot, stagingPrefix)
	if err != nil {
		return err
	}
	lock := flock.New(filepath.Join(folder, lockFile))
	if got, err := lock.TryLock(); err != nil || !got {
		return fmt.Errorf("lock %s: %w", folder, err)
	}
	s.folder, s.lock = folder, lock
	return nil
}

// sweepStaging takes away what killed processes of this user left. A folder without a lock is just being made.
func sweepStaging() {
	folders, _ := filepath.Glob(filepath.Join(stagingRoot, stagingPrefix+"*"))
	for _, folder := range folders {
		path := filepath.Join(folder, lockFile)
		if _, err := os.Stat(path); err != nil {
			continue
		}
		lock := flock.New(path)
		if got, err := lock.TryLock(); err == nil && got {
			_ = os.RemoveAll(folder)
			_ = lock.Close()
		}
	}
}

func (s *staging) linkStream(name string) error {
	stream := filepath.Join(s.streams, name)
	if _, err := os.Stat(stream); os.IsNotExist(err) {
		return nil // it is not made yet
	}
	link, target := filepath.Join(stream, "batches"), filepath.Join(s.folder, name)
	if have, err := os.Readlink(link); err == nil && have == target {
		return nil
	}
	if err := os.MkdirAll(target, 0o700); err != nil {
		return err
	}
	if err := os.Remove(link); err != nil && !os.IsNotExist(err) {
		return err // a batch is under way there
	}
	return os.Symlink(target, link)
}

// close takes our folder away.
func (s *staging) close() {
	if s.folder == "" {
		return
	}
	_ = os.RemoveAll(s.folder)
	_ = s.lock.Close()
	s.folder = ""
}
