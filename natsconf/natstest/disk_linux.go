package natstest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"verifyd/natsconf/natstest/prove"
)

const (
	// diskBytes is the size of a test's disk, of which the image holds what is used, and memoryBytes that of
	// the filesystem in memory that holds the image.
	diskBytes   = 256 << 20
	memoryBytes = 384 << 20
	// shutdownRequest is ext4's EXT4_IOC_SHUTDOWN. Its flags: with what was written before, and without
	// (EXT4_GOING_FLAGS_DEFAULT, EXT4_GOING_FLAGS_NOLOGFLUSH).
	shutdownRequest  = 0x8004587d
	afterFlush, lost = 0, 2
	// freezeRequest and thawRequest are the kernel's FIFREEZE and FITHAW.
	freezeRequest, thawRequest = 0xc0045877, 0xc0045878
)

// Disk is an ext4 filesystem of a test's own, in a file of another. What was written and not synced is in the
// kernel's cache alone, and a copy of the file holds what a power cut would have left.
type Disk struct {
	Image, At string
	under     mounted // the filesystem that holds the image
}

type mounted struct{ image, at string }

// NewDisk makes and mounts a filesystem at a folder, until the test ends, for a test of the proof "disk".
func NewDisk(t testing.TB, at string) *Disk {
	t.Helper()
	prove.Only(t, "disk", "it makes a filesystem, as root")
	memory := t.TempDir()
	d := &Disk{At: at, under: mounted{filepath.Join(memory, "under.img"), filepath.Join(memory, "under")}}
	d.Image = filepath.Join(d.under.at, "disk.img")
	t.Cleanup(func() {
		for _, at := range []string{at, d.under.at, memory} {
			_ = run("umount", "-l", at)
		}
	})
	err := run("mount", "-t", "tmpfs", "tmpfs", memory)
	for _, step := range []func() error{
		func() error { return makeImage(d.under.image, memoryBytes, "-O", "^has_journal") },
		func() error { return os.MkdirAll(d.under.at, 0o700) },
		d.under.mount,
		func() error { return makeImage(d.Image, diskBytes) },
		func() error { return os.MkdirAll(at, 0o700) },
		func() error { return d.Mount(d.Image) },
	} {
		if err == nil {
			err = step()
		}
	}
	if err != nil {
		t.Fatalf("this proof makes and mounts a filesystem, which takes root on Linux: %v", err)
	}
	return d
}

func makeImage(path string, size int64, options ...string) error {
	f, err := os.Create(path) //nolint:gosec // the test's own
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		return err
	}
	return run("mkfs.ext4", append(options, "-q", path)...)
}

func (m mounted) mount() error { return run("mount", "-o", "loop", m.image, m.at) }

// Mount mounts an image. The journal itself writes only when somebody syncs.
func (d *Disk) Mount(image string) error { return run("mount", "-o", "loop,commit=300", image, d.At) }

// Unmount takes the filesystem away.
func (d *Disk) Unmount() error { return run("umount", d.At) }

// Remount takes a failed filesystem away and mounts what reached its disk.
func (d *Disk) Remount(t testing.TB) {
	t.Helper()
	for _, step := range []func() error{
		d.Unmount,
		func() error { return run("umount", d.under.at) },
		d.under.mount,
		func() error { return d.Mount(d.Image) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
}

// FailSyncs makes the disk take nothing more: each later sync returns an error, while writes to the kernel's
// cache succeed until the filesystem notices.
func (d *Disk) FailSyncs(t testing.TB) {
	t.Helper()
	shutDown(t, d.under.at, afterFlush)
}

// Fail makes every later write and sync of the filesystem return an error, and removes what its log has not
// written yet, as where a disk drops off its bus.
func (d *Disk) Fail(t testing.TB) {
	t.Helper()
	shutDown(t, d.At, lost)
}

// Slow makes writes and syncs wait, each for about so long, until the test ends: the filesystem is frozen
// again and again. None fails.
func (d *Disk) Slow(t testing.TB, each time.Duration) {
	t.Helper()
	f, err := os.Open(d.At)
	if err != nil {
		t.Fatal(err)
	}
	freeze := func() error { return unix.IoctlSetInt(int(f.Fd()), freezeRequest, 0) }
	if err := freeze(); err != nil {
		t.Fatalf("this proof needs a kernel that freezes filesystems: %v", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var slow sync.WaitGroup
	slow.Go(func() {
		for err == nil {
			select {
			case <-time.After(each):
			case <-ctx.Done():
			}
			err = unix.IoctlSetInt(int(f.Fd()), thawRequest, 0)
			if ctx.Err() != nil {
				return
			}
			runtime.Gosched() // what waits goes on before the next is asked for
			err = errors.Join(err, freeze())
		}
	})
	t.Cleanup(func() {
		stop()
		slow.Wait()
		if err = errors.Join(err, f.Close()); err != nil {
			t.Error(err)
		}
	})
}

func shutDown(t testing.TB, at string, flags int) {
	t.Helper()
	f, err := os.Open(at) //nolint:gosec // the test's own
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := unix.IoctlSetPointerInt(int(f.Fd()), shutdownRequest, flags); err != nil {
		t.Fatalf("this proof needs a kernel that shuts filesystems down: %v", err)
	}
}

func run(command string, args ...string) error {
	out, err := exec.Command(command, args...).CombinedOutput() //nolint:gosec // the test's own words
	if err != nil {
		return &commandError{command, string(out), err}
	}
	return nil
}

type commandError struct {
	command, out string
	err          error
}

func (e *commandError) Error() string { return e.command + ": " + e.err.Error() + " " + e.out }
