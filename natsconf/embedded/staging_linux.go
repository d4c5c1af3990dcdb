package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"
	"golang.org/x/sys/unix"
)

const (
	// stagingRoot is the memory filesystem that Linux provides to every process.
	stagingRoot = "/dev/shm"
	// stagingPrefix begins the names of our folders there.
	stagingPrefix = "verifyd-"
	// minStaging is the free memory below which batches are staged on disk; a batch is at most 2 MiB.
	minStaging = 32 << 20
)

// staging keeps the server's staging area for atomic batches in memory: a folder on the memory filesystem,
// to which the streams' "batches" folders lead. The server stages each batch as a store of its own, a
// handful of files that it syncs and deletes again right after, before it writes and syncs the messages
// themselves; on disk that is most of what a batch costs. Staging on disk would only serve to complete a
// batch that a crash has interrupted: no caller got an answer that such a batch was stored, and no message of
// ours depends on another of its batch.
//
// If anything is not as expected, the server goes on staging on disk.
type staging struct {
	streams string // the folder of the streams
	folder  string // ours, on the memory filesystem; empty: none yet
	lock    *flock.Flock
}

func newStaging(storeDir string) *staging {
	return &staging{streams: filepath.Join(storeDir, "jetstream", "$G", "streams")}
}

// link leads the streams' staging to memory. It is called while no batches are published yet, and may be
// repeated: a start of the server removes the links.
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
	if fs.Type != unix.TMPFS_MAGIC ||
		fs.Bavail*uint64(fs.Bsize) < minStaging { //nolint:gosec // sizes of blocks are positive
		return fmt.Errorf("%s is not a memory filesystem with %d MiB free", stagingRoot, minStaging>>20)
	}
	if i, err := os.Stat(stagingRoot); err != nil || i.Mode()&os.ModeSticky == 0 {
		return fmt.Errorf("%s is not sticky: others could put something else in a folder's place",
			stagingRoot)
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

// sweepStaging removes what killed processes of this user left. A folder without a lock is just being made.
// Everybody may put anything there, so only this user's own files are opened.
func sweepStaging() {
	folders, _ := filepath.Glob(filepath.Join(stagingRoot, stagingPrefix+"*"))
	for _, folder := range folders {
		sweepFolder(folder)
	}
}

func sweepFolder(path string) {
	folder, err := openOwn(unix.AT_FDCWD, path, unix.S_IFDIR)
	if err != nil {
		return
	}
	defer func() { _ = folder.Close() }()
	lock, err := openOwn(int(folder.Fd()), lockFile, unix.S_IFREG)
	if err != nil {
		return
	}
	defer func() { _ = lock.Close() }()
	if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
		_ = os.RemoveAll(path) // no other user can put another in its place: the folder above is sticky
	}
}

// errNotOwn reports that something is of another kind or another user's, or that others may write to it.
var errNotOwn = errors.New("it is not this user's own")

// openOwn opens a folder or a file that belongs to this user and that nobody else may write to. It does not
// block, as opening a named pipe would, and follows no link. It checks before it opens, since opening a
// device has effects, and checks what it has opened.
func openOwn(at int, name string, kind uint32) (*os.File, error) {
	var before unix.Stat_t
	if err := unix.Fstatat(at, name, &before, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, err
	}
	if !isOwn(before, kind) {
		return nil, errNotOwn
	}
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	var opened unix.Stat_t
	if err := unix.Fstat(fd, &opened); err != nil || !isOwn(opened, kind) {
		_ = f.Close()
		return nil, errors.Join(errNotOwn, err)
	}
	return f, nil
}

func isOwn(s unix.Stat_t, kind uint32) bool {
	return s.Mode&unix.S_IFMT == kind && s.Mode&(unix.S_IWGRP|unix.S_IWOTH) == 0 && int(s.Uid) == os.Geteuid()
}

// sever removes links that lead to something that is not this user's own: after the machine's restart the
// folder in memory is gone, and another user may have made one of its name. From that one the server would
// take batches at its start.
func (s *staging) sever() {
	links, _ := filepath.Glob(filepath.Join(s.streams, "*", "batches"))
	for _, link := range links {
		target, err := os.Readlink(link)
		if err != nil {
			continue // it is a folder
		}
		folder, err := openOwn(unix.AT_FDCWD, filepath.Dir(target), unix.S_IFDIR)
		if err != nil {
			_ = os.Remove(link)
			continue
		}
		_ = folder.Close()
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

// close removes our folder.
func (s *staging) close() {
	if s.folder == "" {
		return
	}
	_ = os.RemoveAll(s.folder)
	_ = s.lock.Close()
	s.folder = ""
}
