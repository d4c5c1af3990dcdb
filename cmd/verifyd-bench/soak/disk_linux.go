package soak

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// diskBytes is the size of the last server's disk.
const diskBytes = 1 << 30

// smallDisk is a filesystem in memory that can be filled.
type smallDisk struct{ at string }

// newSmallDisk mounts one at a folder, which requires root.
func newSmallDisk(at string) (*smallDisk, error) {
	if err := os.Mkdir(at, 0o700); err != nil {
		return nil, err
	}
	if err := unix.Mount("tmpfs", at, "tmpfs", 0, fmt.Sprintf("size=%d", diskBytes)); err != nil {
		return nil, fmt.Errorf("mount a filesystem: %w", err)
	}
	return &smallDisk{at}, nil
}

func (d *smallDisk) balloon() string { return filepath.Join(d.at, "balloon") }

// fill leaves no free space.
func (d *smallDisk) fill() error {
	f, err := os.Create(d.balloon())
	if err != nil {
		return err
	}
	block := make([]byte, 1<<20)
	for err == nil {
		_, err = f.Write(block)
	}
	if errors.Is(err, unix.ENOSPC) {
		err = nil
	}
	return errors.Join(err, f.Close())
}

// free removes what fills it.
func (d *smallDisk) free() error { return os.Remove(d.balloon()) }

// close unmounts it.
func (d *smallDisk) close() error {
	if d == nil {
		return nil
	}
	return unix.Unmount(d.at, unix.MNT_DETACH)
}
