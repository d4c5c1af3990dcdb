//go:build unix

package embedded

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// FreeBytes returns the space that is left for this user on the filesystem of a folder.
func FreeBytes(dir string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), nil //nolint:gosec,unconvert // the types differ between systems
}

// SameFilesystem reports whether two folders are on the same filesystem.
func SameFilesystem(a, b string) (bool, error) {
	var sa, sb unix.Stat_t
	if err := unix.Stat(a, &sa); err != nil {
		return false, err
	}
	if err := unix.Stat(b, &sb); err != nil {
		return false, err
	}
	return sa.Dev == sb.Dev, nil
}

// Owner returns the user and the group of the store in a data directory: those of its lock, which the first
// start made, or else of the folder. For a user other than root who has the folder it is that user, whoever
// made the lock. known is false if there is no folder.
func Owner(dataDir string) (uid, gid int, known bool) {
	var folder, lock unix.Stat_t
	if unix.Stat(dataDir, &folder) != nil {
		return 0, 0, false
	}
	own := os.Geteuid() != 0 && int(folder.Uid) == os.Geteuid()
	if own || unix.Stat(filepath.Join(dataDir, lockFile), &lock) != nil {
		lock = folder
	}
	return int(lock.Uid), int(lock.Gid), true
}

// Unusable returns what this user cannot read and write of the store in a data directory, as paths there. As
// root, who can, it is what the owner cannot. Of others, which are files there, reading is enough.
func Unusable(dataDir string, owner int, others ...string) (paths []string) {
	const read, write, enter = 4, 2, 1
	if denied(dataDir, owner, read|write|enter) {
		return []string{"."}
	}
	for _, name := range others {
		if denied(filepath.Join(dataDir, name), owner, read) {
			paths = append(paths, name)
		}
	}
	// other files there are not the store's
	for _, name := range []string{
		lockFile, EndpointFile, WitnessFile, recoveryFile, keptFolder, storeFolder,
	} {
		_ = filepath.WalkDir(filepath.Join(dataDir, name), func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil, d.Type() == fs.ModeSymlink: // it is gone, or leads to staged batches
				return nil //nolint:nilerr // what cannot be listed was found when it was met
			case d.Name() == "lost+found": // of a disk that is mounted there
				return fs.SkipDir
			}
			want := uint32(read | write)
			if d.IsDir() {
				want |= enter
			}
			if !denied(path, owner, want) {
				return nil
			}
			within, _ := filepath.Rel(dataDir, path)
			paths = append(paths, within)
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		})
	}
	return paths
}

// denied reports whether this user lacks a permission on a file; as root, whether its owner does, as far as
// the file's mode shows.
func denied(path string, owner int, want uint32) bool {
	if os.Geteuid() == 0 && owner != 0 {
		var s unix.Stat_t
		return unix.Stat(path, &s) == nil && int(s.Uid) != owner &&
			(uint32(s.Mode)>>3|uint32(s.Mode))&want != want //nolint:unconvert // the type differs between systems
	}
	return errors.Is(unix.Access(path, want), fs.ErrPermission)
}
