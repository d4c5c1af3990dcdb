package natstest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"verifyd/natsconf/natstest/prove"
)

const (
	// memoryRoot is the memory filesystem that Linux provides to every process.
	memoryRoot = "/dev/shm"
	// memoryPrefix begins the names of our folders there; the process's number ends it, then a dash.
	memoryPrefix = "tests-of-verifyd-"
	// minMemory is the free memory below which a package's stores stay on the disk: those that exist at once
	// have some hundred megabytes, and packages are tested in parallel.
	minMemory = 2 << 30
)

// onDisk are the proofs whose stores are on the disk, as a service's are.
var onDisk = []string{"chaos", "disk", "kills", "weights"}

// inMemory has tests' folders in memory, where there is room. More than half of the processor time of a
// store's life is the disk's filesystem: 60 ms for a start with the topology, of which 20 are left in memory.
// A TMPDIR that is set is kept, and so is the disk for proofs that are about it. drop removes what is left.
func inMemory() (drop func()) {
	var fs unix.Statfs_t
	if slices.ContainsFunc(onDisk, prove.Runs) || os.Getenv("TMPDIR") != "" ||
		unix.Statfs(memoryRoot, &fs) != nil || fs.Type != unix.TMPFS_MAGIC ||
		fs.Bavail*uint64(fs.Bsize) < minMemory { //nolint:gosec // sizes of blocks are positive
		return func() {}
	}
	sweepMemory()
	dir, err := os.MkdirTemp(memoryRoot, fmt.Sprintf("%s%d-", memoryPrefix, os.Getpid()))
	if err != nil {
		return func() {}
	}
	_ = os.Setenv("TMPDIR", dir)
	return func() { _ = os.RemoveAll(dir) }
}

// sweepMemory removes what processes have left that were killed, or whose tests took too long.
func sweepMemory() {
	folders, _ := filepath.Glob(filepath.Join(memoryRoot, memoryPrefix+"*"))
	for _, folder := range folders {
		number, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(folder), memoryPrefix), "-")
		pid, err := strconv.Atoi(number)
		if err == nil && errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			_ = os.RemoveAll(folder)
		}
	}
}
