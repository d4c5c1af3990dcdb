package natstest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	// diskBytes is the size of a test's disk, of which the image holds what is used. The memory that holds
	// the image has room for two.
	diskBytes   = 256 << 20
	imageMemory = "size=512m"
	// shutdownRequest and withoutLog are ext4's EXT4_IOC_SHUTDOWN and EXT4_GOING_FLAGS_NOLOGFLUSH.
	shutdownRequest = 0x8004587d
	withoutLog      = 2
)

// Disk is an ext4 filesystem of a test's own, in a file. What was written and not synced is in the kernel's
// cache alone, and a copy of the file holds what a power cut would have left.
type Disk struct{ Image, At string }

// NewDisk makes and mounts a filesystem at a folder, until the test ends. Where that is not possible, the
// test is skipped.
func NewDisk(t testing.TB, at string) *Disk {
	t.Helper()
	memory := t.TempDir()
	if err := run("mount", "-t", "tmpfs", "-o", imageMemory, "tmpfs", memory); err != nil {
		t.Skipf("skipped: this test needs to mount a filesystem, as root on Linux: %v", err)
	}
	t.Cleanup(func() { _ = run("umount", "-l", memory) })
	d := &Disk{Image: filepath.Join(memory, "disk.img"), At: at}
	f, err := os.Create(d.Image)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(diskBytes); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(at, 0o700); err != nil {
		t.Fatal(err)
	}
	err = run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", d.Image)
	if err == nil {
		err = d.Mount(d.Image)
	}
	if err != nil {
		t.Skipf("skipped: this test needs to make and mount a filesystem, as root on Linux: %v", err)
	}
	t.Cleanup(func() { _ = run("umount", "-l", at) })
	return d
}

// Mount mounts an image. The journal itself writes only when somebody syncs.
func (d *Disk) Mount(image string) error { return run("mount", "-o", "loop,commit=300", image, d.At) }

// Unmount takes the filesystem away.
func (d *Disk) Unmount() error { return run("umount", d.At) }

// Remount takes a failed filesystem away and mounts what reached its disk.
func (d *Disk) Remount(t testing.TB) {
	t.Helper()
	if err := d.Unmount(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(d.ballast()); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if err := d.Mount(d.Image); err != nil {
		t.Fatal(err)
	}
}

func (d *Disk) ballast() string { return filepath.Join(filepath.Dir(d.Image), "ballast") }

// FailSyncs makes every later sync return an error, while writes still succeed: the image finds no room for
// what is new.
func (d *Disk) FailSyncs(t testing.TB) {
	t.Helper()
	f, err := os.Create(d.ballast())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for block := make([]byte, 1<<20); len(block) > 0; {
		if _, err := f.Write(block); err != nil {
			block = block[:len(block)/2]
		}
	}
}

// Fail makes every later write and sync of the filesystem return an error, and takes away what its log has
// not written yet, as where a disk drops off its bus.
func (d *Disk) Fail(t testing.TB) {
	t.Helper()
	f, err := os.Open(d.At)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := unix.IoctlSetPointerInt(int(f.Fd()), shutdownRequest, withoutLog); err != nil {
		t.Skipf("skipped: this kernel does not shut a filesystem down: %v", err)
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
