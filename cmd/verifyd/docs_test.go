package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A promise that names a test which is gone is no longer proven.
func TestTestsThatTheDocsNameExist(t *testing.T) {
	beside(t)
	const root = "../.."
	var code strings.Builder
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		code.Write(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`\b(Test|Fuzz)[A-Z][A-Za-z0-9]+`)
	for _, doc := range []string{"SECURITY.md", "GUARANTEES.md"} {
		text, err := os.ReadFile(filepath.Join(root, "docs", doc))
		if err != nil {
			t.Fatal(err)
		}
		names := named.FindAllString(string(text), -1)
		if len(names) < 10 {
			t.Errorf("%s names %d tests; is it read?", doc, len(names))
		}
		for _, name := range names {
			if !strings.Contains(code.String(), "func "+name+"(") {
				t.Errorf("%s names %s, which does not exist", doc, name)
			}
		}
	}
}
