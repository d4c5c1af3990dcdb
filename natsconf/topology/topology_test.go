package topology_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"verifyd/natsconf/topology"
)

var update = flag.Bool("update", false, "write testdata anew")

// The golden file shows every change of the topology in review. Run with -update after a wanted one.
func TestTopologyIsAsWritten(t *testing.T) {
	var got bytes.Buffer
	for _, replicas := range []int{1, 3} {
		fmt.Fprintf(&got, "# replicas: %d\n", replicas)
		enc := json.NewEncoder(&got)
		enc.SetIndent("", "  ")
		if err := enc.Encode(topology.New(topology.Options{
			Replicas: replicas, Embedded: replicas == 1,
		})); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join("testdata", "topology.golden")
	if *update {
		if err := os.WriteFile(path, got.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("the topology changed; if wanted: go test ./natsconf/topology -update\n%s",
			got.String())
	}
}

// The operators' table of what is kept has each stream and bucket, and no other.
func TestWhatIsKeptIsDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/OPERATING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## What is kept")
	section, _, _ = strings.Cut(section, "\n## ")
	have := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\|.*\\| (stream|buckets?) (`.*) \\|.*\\|$").
		FindAllStringSubmatch(section, -1) {
		for name := range strings.SplitSeq(strings.ReplaceAll(m[2], "`", ""), ", ") {
			if m[1] != "stream" {
				name = topology.BucketStream(name)
			}
			have[name] = true
		}
	}
	want := slices.Sorted(slices.Values(topology.StreamNames()))
	if got := slices.Sorted(maps.Keys(have)); !slices.Equal(got, want) {
		t.Errorf("OPERATING.md has\n%q\nthe streams are\n%q", got, want)
	}
}

// The table of the package's doc comment is the topology: each asset, its subjects and its age, and nothing
// else.
func TestDocumentedTopology(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("doc.go")
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
		return "forever"
	case age >= 10*24*time.Hour:
		return fmt.Sprintf("%d d", age/(24*time.Hour))
	case age >= time.Hour:
		return fmt.Sprintf("%d h", age/time.Hour)
	default:
		return fmt.Sprintf("%d min", age/time.Minute)
	}
}
