package main

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"verifyd/cmd/verifyd/check"
	"verifyd/cmd/verifyd/config"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/natstest"
)

// filesOf returns the sizes of what is in a folder, by name.
func filesOf(t *testing.T, dir string) map[string]int64 {
	t.Helper()
	sizes := map[string]int64{}
	for _, e := range must[[]os.DirEntry](t)(os.ReadDir(dir)) {
		if info, err := e.Info(); err == nil {
			sizes[e.Name()] = info.Size()
		}
	}
	return sizes
}

// otherDisk returns a folder on another filesystem than another one; empty if this machine has none.
func otherDisk(t *testing.T, than string) string {
	t.Helper()
	for _, above := range []string{"/dev/shm", os.TempDir(), "/tmp", "/var/tmp"} {
		dir, err := os.MkdirTemp(above, "verifydtest") //nolint:usetesting // it must exist
		if err != nil {
			continue
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		if same, err := embedded.SameFilesystem(dir, than); err == nil && !same {
			return dir
		}
	}
	return ""
}

// The folder of the copy is checked as the service does: before it starts, and while it runs, which a check
// does not disturb.
func TestCheckOfTheCopysFolder(t *testing.T) {
	t.Parallel()
	natstest.NeedsEmbedded(t, "copies an embedded store")
	copied, kept := t.TempDir(), filepath.Join(t.TempDir(), "key")
	first := boot(t, func(c *config.Config) { c.CopyTo = copied })
	natstest.Await(t, "there is a copy", func() bool {
		return first.CopyState().Renewed.After(first.CopyState().Since)
	})
	store := filepath.Join(first.dir, "store")
	key := must[[]byte](t)(os.ReadFile(filepath.Join(store, config.SecretFile)))
	if err := os.WriteFile(kept, key, 0o600); err != nil {
		t.Fatal(err)
	}
	sameKey := boot(t, func(c *config.Config) { c.Store.KeyFile = kept })
	ownKey := boot(t)
	file, other := filepath.Join(t.TempDir(), "file"), t.TempDir()
	for _, name := range []string{file, filepath.Join(other, "photos")} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fresh := filepath.Join(t.TempDir(), "no store yet")
	type copyRow struct {
		name, store, dir string
		args             []string
		level            check.Level
		words            string
	}
	rows := []copyRow{
		{"its own", store, copied, nil, check.LevelWarning, "on the filesystem of the store"},
		{"another store's", filepath.Join(sameKey.dir, "store"), copied, []string{"--secret-key-file", kept},
			check.LevelError, "the copy of another store"},
		{"another store's, under another key", filepath.Join(ownKey.dir, "store"), copied, nil,
			check.LevelError, "the copy of another store"},
		{"before the first start", fresh, copied, nil, check.LevelError, "another master key"},
		{"empty, before the first start", fresh, t.TempDir(), nil, check.LevelWarning,
			"on the filesystem of the store"},
		{"missing", store, filepath.Join(other, "missing"), nil, check.LevelError, "there is no folder"},
		{"a file", store, file, nil, check.LevelError, "is not a folder"},
		{"other files", store, other, nil, check.LevelError, "holds something else (photos)"},
		{"in the data directory", store, store, nil, check.LevelError, "is in the data directory"},
	}
	if disk := otherDisk(t, store); disk != "" {
		rows = append(rows, copyRow{"on another disk", store, disk, nil, check.LevelOK, disk})
	}
	if os.Geteuid() != 0 { // root may do everything
		closed := t.TempDir()
		if err := os.Chmod(closed, 0o500); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, copyRow{
			"not writable", store, closed, nil, check.LevelError, "permission denied",
		})
	}
	for _, row := range rows {
		before := map[string]int64{}
		if row.dir != copied && row.level != check.LevelError {
			before = filesOf(t, row.dir)
		}
		_, found := checked(t, append(row.args, "--data-dir", row.store, "--copy-to", row.dir)...)
		expectFound(t, found, "copy", row.level, row.words)
		if len(found["copy"]) != 1 {
			t.Errorf("%s: %+v", row.name, found["copy"])
		}
		if row.dir != copied && row.level != check.LevelError && !maps.Equal(before, filesOf(t, row.dir)) {
			t.Errorf("%s: a check left %v where there was %v", row.name, filesOf(t, row.dir), before)
		}
	}
	if s := first.CopyState(); s.Failures > 0 || s.Err != nil {
		t.Errorf("the checks have disturbed the copy: %+v", s)
	}
	if _, found := checked(t, "--data-dir", store); len(found["copy"]) > 0 {
		t.Errorf("without a copy: %+v", found["copy"])
	}
}
