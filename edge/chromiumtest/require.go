package chromiumtest

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// RequireVariable lists, separated by commas, what tests may not do without: they fail where it is missing,
// instead of being skipped.
const RequireVariable = "VERIFYD_TEST_REQUIRE"

// Lack ends a test for want of something: skipped, or failed where VERIFYD_TEST_REQUIRE names it. what is the
// name there, and means is for people: the programs, and how they are had.
func Lack(t *testing.T, what, means string) {
	t.Helper()
	if slices.Contains(strings.Split(os.Getenv(RequireVariable), ","), what) {
		t.Fatalf("%s names %s, and there is no %s", RequireVariable, what, means)
	}
	t.Skipf("skipped: this test needs %s", means)
}

// Program returns the path of the first of the programs that is there, and otherwise ends the test by Lack.
func Program(t *testing.T, what, means string, names ...string) string {
	t.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	Lack(t, what, means)
	return ""
}
