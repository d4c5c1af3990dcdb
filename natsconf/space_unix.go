//go:build unix

package natsconf

import "golang.org/x/sys/unix"

// FreeBytes gives the space that is left for this user on the filesystem of a folder.
func FreeBytes(dir string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), nil //nolint:gosec,unconvert // the types differ between systems
}
