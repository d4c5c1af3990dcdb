package laws

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const contributing = "../../CONTRIBUTING.md"

var (
	layout     = regexp.MustCompile("(?s)## The layout\n\n```\n(.*?)```")
	layoutLine = regexp.MustCompile(`^((?:  )*)([a-z0-9/-]+)/ +\S`)
)

// The layout in CONTRIBUTING.md has a line for each folder with Go code, and none for a folder that is not
// there.
func TestLayoutIsWhole(t *testing.T) {
	t.Parallel()
	listed := foldersOfTheLayout(t)
	if err := eachFile(".go", func(name, _ string) error {
		if folder := path.Dir(name); !listed[folder] {
			t.Errorf("%s: the layout has no line for %s", contributing, folder)
			listed[folder] = true // reported
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// foldersOfTheLayout returns the folders in the layout, by their paths from the root.
func foldersOfTheLayout(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(contributing)
	if err != nil {
		t.Fatal(err)
	}
	block := layout.FindSubmatch(text)
	if block == nil {
		t.Fatalf("%s has no layout", contributing)
	}
	listed := map[string]bool{}
	var above []string
	for line := range strings.Lines(string(block[1])) {
		m := layoutLine.FindStringSubmatch(line)
		if m == nil || len(m[1])/2 > len(above) {
			t.Errorf("%s: this line of the layout is not read: %s", contributing, line)
			continue
		}
		above = append(above[:len(m[1])/2], m[2])
		folder := path.Join(above...)
		if info, err := os.Stat(filepath.Join("..", "..", folder)); err != nil || !info.IsDir() {
			t.Errorf("%s: the layout has %s, which is not there", contributing, folder)
		}
		if listed[folder] {
			t.Errorf("%s: the layout has %s twice", contributing, folder)
		}
		listed[folder] = true
	}
	return listed
}
