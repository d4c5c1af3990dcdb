package dashboard_test

import (
	"io/fs"
	"os"
	"regexp"
	"testing"

	"verifyd/edge/dashboard/paths"
	"verifyd/edge/guide"
)

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
