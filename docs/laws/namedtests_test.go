package laws

import (
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Z]\w*)\(`)
	// testRun is a command of a document that runs some tests of some packages; ./PACKAGE is none.
	testRun = regexp.MustCompile("go test ((?:[^`\\sA-Z]+ )*?)-run (?:'([^']*)'|([^`\\s]+))")
	// testsOf are tests as documents name them, behind their package.
	testsOf = regexp.MustCompile(`\b((?:cmd|docs|edge|sessions|dispatcher|natsconf)[a-z0-9/-]*): ` +
		`((?:(?:Test|Fuzz)[A-Z]\w* ?)+)`)
	testName = regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w*`)
)

// namedTests is the number of tests in documents below which the expressions no longer find them.
const namedTests = 450

// A promise whose test no longer exists, or is not where a document says, is no longer proven.
func TestTestsThatTheDocumentsNameExist(t *testing.T) {
	t.Parallel()
	folders := map[string]map[string]bool{} // of the tests, by their names
	if err := eachFile(".go", func(name, file string) error {
		if !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		code, err := os.ReadFile(file)
		for _, m := range testFunc.FindAllSubmatch(code, -1) {
			test := string(m[1])
			if folders[test] == nil {
				folders[test] = map[string]bool{}
			}
			folders[test][path.Dir(name)] = true
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	found := 0
	if err := eachFile(".md", func(name, file string) error {
		b, err := os.ReadFile(file)
		text := strings.Join(strings.Fields(string(b)), " ")
		for _, m := range testRun.FindAllStringSubmatch(text, -1) {
			for pattern := range strings.SplitSeq(m[2]+m[3], "|") {
				if pattern != "^$" && !runsATest(folders, m[1], regexp.MustCompile(pattern)) {
					t.Errorf("%s: no test is run by: %s", name, m[0])
				}
			}
		}
		text = testRun.ReplaceAllString(text, "")
		for _, m := range testsOf.FindAllStringSubmatch(text, -1) {
			for test := range strings.FieldsSeq(m[2]) {
				if !folders[test][m[1]] {
					t.Errorf("%s: %s has no %s; folders that do: %q", name, m[1], test,
						slices.Sorted(maps.Keys(folders[test])))
				}
			}
		}
		for _, test := range testName.FindAllString(text, -1) {
			found++
			if folders[test] == nil {
				t.Errorf("%s names %s, which does not exist", name, test)
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if found < namedTests {
		t.Errorf("only %d names are found", found)
	}
}

// runsATest reports whether a pattern matches a test in one of the packages of a command.
func runsATest(folders map[string]map[string]bool, packages string, pattern *regexp.Regexp) bool {
	for test, in := range folders {
		for p := range strings.FieldsSeq(packages) {
			if in[strings.TrimPrefix(p, "./")] && pattern.MatchString(test) {
				return true
			}
		}
	}
	return false
}
