//go:build !unix

package embedded

import "math"

// FreeBytes would return the space that is left on the filesystem of a folder; it is not known here, and the
// store's own limit still holds.
func FreeBytes(string) (int64, error) { return math.MaxInt64, nil }

// SameFilesystem would report whether two folders are on the same filesystem; it is not known here.
func SameFilesystem(string, string) (bool, error) { return false, nil }
