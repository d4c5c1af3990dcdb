package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Where the tests of purges have stores.
const (
	ownStore  = "/var/lib/verifyd"
	elsewhere = "/srv/elsewhere"
)

// fill makes a folder there, with files as a store has them.
func (d debian) fill(t *testing.T, folder string) {
	t.Helper()
	d.as(t, "root", "mkdir", "-p", folder+"/streams")
	d.as(t, "root", "touch", folder+"/.hidden", folder+"/streams/secret.key")
}

// filled fails the test unless a folder has its files still.
func (d debian) filled(t *testing.T, folder string) {
	t.Helper()
	if _, err := os.Stat(d.path(folder + "/streams/secret.key")); err != nil {
		t.Error(err)
	}
}

// absent fails the test if a file or link is there.
func (d debian) absent(t *testing.T, name string) {
	t.Helper()
	if _, err := os.Lstat(d.path(name)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is left: %v", name, err)
	}
}

// ends removes or purges the package, which must print a text.
func (d debian) ends(t *testing.T, how, says string) {
	t.Helper()
	said, err := d.command(t.Context(), "root", "dpkg", how, "verifyd").CombinedOutput()
	if err != nil || !strings.Contains(string(said), says) {
		t.Errorf("%s: %v: %s, want %q", how, err, said, says)
	}
}

// A purge empties a mount point, and leaves it. It leaves what is behind a link, and names it.
func TestPurge(t *testing.T) {
	t.Parallel()
	b := release(t)
	d := newDebian(t)
	deb := d.put(t, b.file(t, ".deb"))

	d.as(t, "root", "mkdir", ownStore)
	run(t, "mount", "-t", "tmpfs", "tmpfs", d.path(ownStore))
	t.Cleanup(func() { _ = exec.Command("umount", d.path(ownStore)).Run() })
	d.as(t, "root", "dpkg", "--install", deb)
	d.fill(t, ownStore)
	d.ends(t, "--purge", ownStore+" is left, since it is a mount point")
	if left, err := os.ReadDir(d.path(ownStore)); err != nil || len(left) > 0 {
		t.Errorf("the mount point has %v, %v", left, err)
	}
	run(t, "umount", d.path(ownStore))
	d.as(t, "root", "rmdir", ownStore)

	d.fill(t, elsewhere)
	d.as(t, "root", "ln", "-s", elsewhere, ownStore)
	d.as(t, "root", "dpkg", "--install", deb)
	d.ends(t, "--purge", "the store in "+elsewhere+" is left")
	d.absent(t, ownStore)
	d.filled(t, elsewhere)
}

// A store elsewhere, by data_dir, stays and is named when the package is removed: a purge no longer knows it.
func TestPurgeOfAnotherFolder(t *testing.T) {
	t.Parallel()
	b := release(t)
	d := newDebian(t)
	d.as(t, "root", "dpkg", "--install", d.put(t, b.file(t, ".deb")))
	d.fill(t, ownStore)
	d.fill(t, elsewhere)
	config := d.path("etc/verifyd/config.yaml")
	changed := strings.Replace(string(read(t, config)), "data_dir: "+ownStore,
		`data_dir: "`+elsewhere+`/" # moved`, 1)
	if err := os.WriteFile(config, []byte(changed), 0o640); err != nil {
		t.Fatal(err)
	}
	d.ends(t, "--remove", "the store in "+elsewhere+" is left")
	d.filled(t, ownStore)
	d.ends(t, "--purge", "")
	d.absent(t, ownStore)
	d.filled(t, elsewhere)
}
