package main

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"verifyd/cmd/verifyd/check"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/natstest"
)

// nobody is a user other than the one who runs the tests.
const nobody = 65534

// estrange makes a store what it is after another user's command: as root, all of it is another user's but
// for one file; any other user can no longer read that file. An empty name is the folder itself.
func estrange(t *testing.T, dir, name string) {
	t.Helper()
	if os.Geteuid() != 0 {
		mode := map[bool]fs.FileMode{true: 0o500, false: 0}[name == ""]
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
		return
	}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || path == filepath.Join(dir, name) && name != "" {
			return err
		}
		return os.Lchown(path, nobody, nobody)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// stamps returns what a folder holds, and when it was changed.
func stamps(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			all[path] = fmt.Sprint(info.Size(), info.Mode(), info.ModTime())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A store that its user cannot use any more, or that is another user's, is not opened by any command, since
// what it wrote would be lost to the service. It says how it is mended, and writes nothing.
func TestStoreOfAnotherUser(t *testing.T) {
	t.Parallel()
	natstest.NeedsEmbedded(t, "whose folder it is")
	dir, backup := filepath.Join(t.TempDir(), "store"), filepath.Join(t.TempDir(), "backup")
	on := "--data-dir=" + dir
	for _, line := range [][]string{
		{"account", "create", "Harbor Guild", "--new-store", on}, {"backup", backup, "--with-master-key", on},
	} {
		if code, _, errOut := verifyd(t, line...); code != 0 {
			t.Fatalf("%q: exit %d: %s", line, code, errOut)
		}
	}
	estrange(t, dir, embedded.WitnessFile)
	before := stamps(t, dir)
	for _, line := range [][]string{
		{"account", "list"}, {"account", "create", "Pier Guild"}, {"backup", backup + "2"}, {"recover"},
		{"restore", backup},
	} {
		code, _, errOut := verifyd(t, append(line, on)...)
		if code != exitUsage {
			t.Errorf("%q: exit %d: %s", line, code, errOut)
		}
		expect(t, errOut, embedded.WitnessFile, "chown -R ", dir)
	}
	if err := serveFails(t, on); !strings.Contains(err, "data directory: ") ||
		!strings.Contains(err, "chown -R ") {
		t.Errorf("serve: %s", err)
	}
	code, found := checked(t, on)
	if code != exitFailed {
		t.Errorf("check: exit %d", code)
	}
	expectFound(t, found, "data directory", check.LevelError, embedded.WitnessFile)
	for _, f := range found["data directory"] {
		expect(t, f.Do, "chown -R ", dir)
	}
	if after := stamps(t, dir); !maps.Equal(before, after) {
		t.Errorf("the commands have changed the folder from %v to %v", before, after)
	}
	if _, err := os.Stat(backup + "2"); err == nil {
		t.Error("a backup was written")
	}
}

// A new store is not made in a folder of another user, and the master key is not put there.
func TestFolderOfAnotherUser(t *testing.T) {
	t.Parallel()
	natstest.NeedsEmbedded(t, "whose folder it is")
	store, backup := filepath.Join(t.TempDir(), "store"), filepath.Join(t.TempDir(), "backup")
	for _, line := range [][]string{
		{"account", "create", "Harbor Guild", "--new-store"}, {"backup", backup, "--with-master-key"},
	} {
		if code, _, errOut := verifyd(t, append(line, "--data-dir", store)...); code != 0 {
			t.Fatalf("%q: exit %d: %s", line, code, errOut)
		}
	}
	dir := t.TempDir()
	estrange(t, dir, "")
	for _, line := range [][]string{
		{"account", "create", "Harbor Guild", "--new-store"}, {"restore", backup}, {"account", "list"},
	} {
		code, _, errOut := verifyd(t, append(line, "--data-dir", dir)...)
		told := strings.Contains(errOut, "sudo -u ") || strings.Contains(errOut, "chown -R ")
		if code != exitUsage || !told {
			t.Errorf("%q: exit %d: %s", line, code, errOut)
		}
	}
	if made := must[[]os.DirEntry](t)(os.ReadDir(dir)); len(made) > 0 {
		t.Errorf("%s was made", made[0].Name())
	}
}

// The files of a key that cannot be read are no reason to put back the key.
func TestMasterKeyThatCannotBeRead(t *testing.T) {
	t.Parallel()
	natstest.NeedsEmbedded(t, "its data directory")
	if os.Geteuid() == 0 {
		t.Skip("root reads every file")
	}
	dir := filepath.Join(t.TempDir(), "store")
	if code, _, errOut := verifyd(t, "account", "create", "x", "--new-store", "--data-dir", dir); code != 0 {
		t.Fatal(errOut)
	}
	estrange(t, dir, "secret.key")
	_, found := checked(t, "--data-dir", dir)
	expectFound(t, found, "data directory", check.LevelError, "secret.key")
	for _, f := range found["master key"] {
		if strings.Contains(f.Do, "put back") {
			t.Errorf("%+v: it is there", f)
		}
	}
}

// While the service runs a command writes nothing into its folder, so root may run it as before.
func TestRunningStoreOfAnotherUser(t *testing.T) {
	t.Parallel()
	natstest.NeedsEmbedded(t, "whose folder it is")
	if os.Geteuid() != 0 {
		t.Skip("only root can use another user's store")
	}
	r := boot(t)
	dir := filepath.Join(r.dir, "store")
	estrange(t, dir, "")
	if code, out, errOut := verifyd(t, "account", "list", "--data-dir", dir); code != 0 ||
		!strings.Contains(out, "Harbor Guild") {
		t.Errorf("exit %d: %s%s", code, out, errOut)
	}
	_, found := checked(t, "--data-dir", dir)
	expectFound(t, found, "data directory", check.LevelError, "is the store of the user ")
}
