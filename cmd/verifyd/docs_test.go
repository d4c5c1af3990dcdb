package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// A promise whose test no longer exists is no longer proven.
func TestTestsThatTheDocsNameExist(t *testing.T) {
	parallel(t)
	code := testsOfTheRepository(t)
	named := regexp.MustCompile(`\b(Test|Fuzz)[A-Z][A-Za-z0-9]+`)
	for _, doc := range []string{"SECURITY.md", "EVIDENCE.md"} {
		text, err := os.ReadFile(filepath.Join("../../docs", doc))
		if err != nil {
			t.Fatal(err)
		}
		names := named.FindAllString(string(text), -1)
		if len(names) < 10 {
			t.Errorf("%s names %d tests; is it read?", doc, len(names))
		}
		for _, name := range names {
			if !strings.Contains(code, "func "+name+"(") {
				t.Errorf("%s names %s, which does not exist", doc, name)
			}
		}
	}
}

// The table of the package's doc comment has each command, and nothing else.
func TestDocumentedCommands(t *testing.T) {
	parallel(t)
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, row := range regexp.MustCompile(`(?m)^//\tverifyd (\S+)`).FindAllStringSubmatch(string(text), -1) {
		have = append(have, row[1])
	}
	var want []string
	for _, command := range must[*kong.Kong](t)(newParser()).Model.Children {
		if !command.Hidden {
			want = append(want, command.Name)
		}
	}
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("the doc comment has\n%q\nthe commands are\n%q", have, want)
	}
}
