// Package prove keeps proofs out of the quick tests: tests that take minutes, kill processes, need root, a
// browser, containers or another language, or measure. VERIFYD_PROVE lists the names of the proofs to run,
// separated by commas, or is "all". Each name has a row with its commands in docs/EVIDENCE.md.
//
// It is small: it imports nothing of the project, since the simulation's processes, whose chance is chosen,
// link it.
package prove

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Variable lists the proofs to run.
const Variable = "VERIFYD_PROVE"

// Names are the proofs. No test belongs to fuzz and race, which run whole packages in another way.
var Names = []string{
	"browser", "chaos", "cluster", "containers", "disk", "fuzz", "kills", "languages", "life", "packages",
	"providers", "quarantine", "race", "simulation", "soak", "upgrade", "weights",
}

// Only skips a test unless VERIFYD_PROVE names its proof. why says what keeps the test out of the quick ones.
// Only fails the test if the variable names a proof that does not exist: nothing would run, and look proven.
func Only(tb testing.TB, name, why string) {
	tb.Helper()
	for _, asked := range asked() {
		if asked != "all" && !slices.Contains(Names, asked) {
			tb.Fatalf("%s names %q; there are %s, and all", Variable, asked, strings.Join(Names, ", "))
		}
	}
	if !Runs(name) {
		tb.Skipf("a proof (%s=%s): %s", Variable, name, why)
	}
}

// Runs reports whether VERIFYD_PROVE names a proof, for tests that have a short form and a long one.
func Runs(name string) bool {
	if !slices.Contains(Names, name) {
		panic("prove: there is no proof " + name)
	}
	return slices.Contains(asked(), name) || slices.Contains(asked(), "all")
}

// Size returns how much a test does of what it repeats: long in its proof, otherwise short.
func Size(name string, short, long int) int {
	if Runs(name) {
		return long
	}
	return short
}

func asked() []string {
	return strings.FieldsFunc(os.Getenv(Variable), func(r rune) bool { return r == ',' })
}

// Program returns the path of the first of the programs that is there. Without one it fails the test, whose
// proof was asked for: means says what is needed and how to get it.
func Program(tb testing.TB, means string, programs ...string) string {
	tb.Helper()
	for _, name := range programs {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	tb.Fatalf("this proof needs %s", means)
	return ""
}
