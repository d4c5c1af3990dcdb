package dashboard_test

import (
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"verifyd/edge/dashboard/paths"
	"verifyd/edge/guide"
)

// The doc comment lists all pages, by the first part of their paths below the dashboard's.
func TestDocCommentListsThePages(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	listed, routed := map[string]bool{}, map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^//\t([^\s,]+(?:, [^\s,]+)*)`).FindAllStringSubmatch(string(text), -1) {
		for name := range strings.SplitSeq(m[1], ", ") {
			listed[name] = true
		}
	}
	for _, r := range newRig(t, setup{}).routes {
		if below, ok := strings.CutPrefix(r.Path, paths.Root+"/"); ok && below != "" {
			name, _, _ := strings.Cut(below, "/")
			routed[name] = true
		}
	}
	if !maps.Equal(listed, routed) {
		t.Errorf("listed %q\nroutes %q", slices.Sorted(maps.Keys(listed)), slices.Sorted(maps.Keys(routed)))
	}
}

// The documentation that pages link to exists, and every listed place is linked from a page.
func TestDocumentsThatPagesLeadTo(t *testing.T) {
	g, err := guide.New("https://verify.example.com", "")
	if err != nil {
		t.Fatal(err)
	}
	linked := map[string]bool{}
	asked := regexp.MustCompile(`\.Document "([^"]+)"`)
	here := os.DirFS(".")
	files, err := fs.Glob(here, "*/web/*.html")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := fs.ReadFile(here, file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range asked.FindAllSubmatch(text, -1) {
			linked[string(m[1])] = true
			if _, err := paths.Document(string(m[1])); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
	for about := range paths.Documents() {
		to, _ := paths.Document(about)
		if leads, err := g.Leads(to); err != nil || !leads {
			t.Errorf("%q leads to %s, which is not there: %v", about, to, err)
		}
		if !linked[about] {
			t.Errorf("no page leads to what is said about %q", about)
		}
	}
}
