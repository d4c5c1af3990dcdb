//go:build !unix

package natsconf

import "math"

// freeBytes is not known here; the store's own limit still holds.
func freeBytes(string) (int64, error) { return math.MaxInt64, nil }
