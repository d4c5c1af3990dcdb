package main

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/alecthomas/kong"
)

// The table of the package's doc comment has each command, and nothing else.
func TestDocumentedCommands(t *testing.T) {
	t.Parallel()
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
