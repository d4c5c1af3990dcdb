package natsconf_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"verifyd/natsconf/topology"
)

// The table of the package's doc comment is the topology: each asset, its subjects and its age, and nothing
// else.
func TestDocumentedTopology(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("topology/doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for line := range strings.Lines(string(text)) {
		row, ok := strings.CutPrefix(line, "//\t")
		if columns := cells(row); ok && columns[0] != "asset" {
			have = append(have, strings.Join(columns[:min(3, len(columns))], " | "))
		}
	}
	table := topology.New(topology.Options{})
	var want []string
	for _, s := range table.Streams {
		want = append(want, fmt.Sprintf("%s | %s | %s", s.Name, strings.Join(s.Subjects, " "),
			ageText(s.MaxAge)))
	}
	for _, c := range table.Consumers {
		want = append(want, fmt.Sprintf("%s | %s | –", c.Config.Durable,
			strings.Join(c.Config.FilterSubjects, " ")))
	}
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("the doc comment has\n%s\nthe topology is\n%s", strings.Join(have, "\n"),
			strings.Join(want, "\n"))
	}
}

// cells are the columns of a row, which two spaces or more separate.
func cells(row string) []string {
	var all []string
	for cell := range strings.SplitSeq(row, "  ") {
		if cell = strings.TrimSpace(cell); cell != "" {
			all = append(all, cell)
		}
	}
	return append(all, make([]string, max(0, 1-len(all)))...)
}

func ageText(age time.Duration) string {
	switch {
	case age == 0:
		return "for ever"
	case age >= 10*24*time.Hour:
		return fmt.Sprintf("%d d", age/(24*time.Hour))
	case age >= time.Hour:
		return fmt.Sprintf("%d h", age/time.Hour)
	default:
		return fmt.Sprintf("%d min", age/time.Minute)
	}
}
