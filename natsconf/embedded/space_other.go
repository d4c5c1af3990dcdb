//go:build !unix

package embedded

import "math"

// FreeBytes would return the space that is left on the filesystem of a folder; it is not known here, and the
// store's own limit still holds.
func FreeBytes(string) (int64, error) { return math.MaxInt64, nil }

// SameFilesystem would report whether two folders are on the same filesystem; it is not known here.
func SameFilesystem(string, string) (bool, error) { return false, nil }

// Owner would return whose store is in a data directory; it is not known here.
func Owner(string) (uid, gid int, known bool) { return 0, 0, false }

// Unusable would return what this user cannot use of a store; it is not known here.
func Unusable(string, int, ...string) []string { return nil }
