package evidence

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// repository creates a module with a test that logs figures, one that logs none and one that fails.
func repository(t *testing.T, document string) (root string) {
	t.Helper()
	root = t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module sample\n\ngo 1.26\n",
		"sample_test.go": `package sample

import (
	"flag"
	"testing"
)

var many = flag.Int("many", 1, "")

func TestCounts(t *testing.T) {
	t.Logf("figures: %d of %d|all", *many, *many)
	t.Run("again", func(t *testing.T) { t.Log("figures: and more") })
}

func TestSilent(t *testing.T) { t.Log("nothing to tell") }

func TestBroken(t *testing.T) { t.Error("figures: 1") }
`,
		Document: document,
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const before = "# Evidence\n\n| what | last figures | repeat |\n|---|---|---|\n" +
	"| Counting. | none | `go test . -run 'TestCounts$' -v -args -many 3` |\n" +
	"| Silence. | old | `go test . -run 'TestSilent$' -v` |\n" +
	"| A fault. | old | `go test . -run 'TestBroken$' -v` |\n"

func TestWrite(t *testing.T) {
	t.Parallel()
	root := repository(t, before)
	err := Write(t.Context(), root, "", io.Discard)
	if err == nil || !strings.Contains(err.Error(), "TestSilent") ||
		!strings.Contains(err.Error(), "TestBroken") || strings.Contains(err.Error(), "TestCounts") {
		t.Errorf("error: %v", err)
	}
	got, err := os.ReadFile(filepath.Join(root, Document))
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(before, "| none |",
		"| "+time.Now().UTC().Format(time.DateOnly)+": 3 of 3/all; and more |", 1)
	if string(got) != want {
		t.Errorf("the document is\n%s\nwant\n%s", got, want)
	}
}

func TestWriteSome(t *testing.T) {
	t.Parallel()
	root := repository(t, before)
	if err := Write(t.Context(), root, "Counts", io.Discard); err != nil {
		t.Error(err)
	}
	if err := Write(t.Context(), root, "Nowhere", io.Discard); err == nil ||
		!strings.Contains(err.Error(), `"Nowhere"`) {
		t.Errorf("error: %v", err)
	}
}

// What the document of this repository repeats can be run: each command names one test that logs figures.
func TestRowsOfTheDocument(t *testing.T) {
	t.Parallel()
	const root = "../../.."
	document, err := os.ReadFile(filepath.Join(root, Document))
	if err != nil {
		t.Fatal(err)
	}
	rows, all := row.FindAllSubmatch(document, -1), strings.Count(string(document), "| `go test ")
	if len(rows) < 10 || len(rows) != all {
		t.Errorf("%d rows of %d with a command are read", len(rows), all)
	}
	for _, r := range rows {
		words := strings.Fields(string(r[4]))
		_, name, _ := strings.Cut(string(r[4]), "'")
		name, _, ok := strings.Cut(name, "$'")
		if !ok || !strings.Contains(string(r[4]), " -v") {
			t.Errorf("%s: no test named as 'TestX$', or no -v", r[4])
			continue
		}
		if file := testFile(t, filepath.Join(root, words[2]), name); !strings.Contains(file, `"figures: `) {
			t.Errorf("%s: its file logs no figures", r[4])
		}
	}
}

// testFile returns the file of a package that has a test.
func testFile(t *testing.T, dir, name string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\nfunc "+name+"(") {
			return string(text)
		}
	}
	t.Errorf("%s has no %s", dir, name)
	return ""
}
