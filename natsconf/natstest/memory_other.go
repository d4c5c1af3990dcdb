//go:build !linux

package natstest

// inMemory has tests' folders in memory, where the system has such a filesystem.
func inMemory() (drop func()) { return func() {} }
