package serverconf_test

import (
	"os"
	"testing"

	"verifyd/natsconf/permission"
	"verifyd/natsconf/serverconf"
)

// Seeds are created once, and only their owner can read them.
func TestSeeds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := serverconf.EnsureUsers(dir)
	if err != nil {
		t.Fatal(err)
	}
	second, err := serverconf.EnsureUsers(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, role := range permission.Roles() {
		if first[role].Newest() != second[role].Newest() || len(second[role].Names) != 1 {
			t.Errorf("%s: %q, then %q", role, first[role], second[role])
		}
		info, err := os.Stat(serverconf.SeedFile(dir, role))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %s", role, info.Mode())
		}
	}
}
