package proofs

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"verifyd/natsconf/natstest"
	"verifyd/natsconf/natstest/prove"
)

// repository creates a module with a test that logs figures, one that logs none and one that fails, and a
// document that names them as proofs.
func repository(t *testing.T, document string) (root string) {
	t.Helper()
	root = t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module sample\n\ngo 1.26\n",
		"sample_test.go": `package sample

import (
	"flag"
	"os"
	"testing"
)

var many = flag.Int("many", 1, "")

func TestCounts(t *testing.T) {
	t.Logf("figures: %d of %d|all, %s", *many, *many, os.Getenv("VERIFYD_PROVE"))
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

const before = "# Evidence\n\n| what | last result | repeat |\n|---|---|---|\n" +
	"| Counting. | none | `VERIFYD_PROVE=kills go test . -run 'TestCounts$' -v -args -many 3` |\n" +
	"| Silence. | old | `VERIFYD_PROVE=kills go test . -run 'TestSilent$' -v` |\n" +
	"| A fault. | old | `VERIFYD_PROVE=chaos,kills go test . -run 'TestBroken$' -v` |\n" +
	"| Not asked for. | old | `VERIFYD_PROVE=soak go test . -run 'TestBroken$' -v` |\n"

// Each row of the proofs is run, what passed gets its result, and what failed is named, with its log.
func TestRun(t *testing.T) {
	t.Parallel()
	root, logs := repository(t, before), t.TempDir()
	selected, err := Select("kills", "chaos")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	err = Run(t.Context(), selected, Options{Root: root, Logs: logs, Write: true, Out: &out})
	if err == nil || !strings.Contains(err.Error(), "TestBroken") || !strings.Contains(err.Error(), logs) ||
		strings.Contains(err.Error(), "TestCounts") {
		t.Errorf("error: %v", err)
	}
	if lines := strings.Split(out.String(), "\n"); len(lines) != 4 ||
		!strings.HasPrefix(lines[0], "kills\tpassed\t") || !strings.HasPrefix(lines[1], "kills\tpassed\t") ||
		!strings.HasPrefix(lines[2], "chaos\tFAILED\t") {
		t.Errorf("it prints\n%s", out.String())
	}
	got, err := os.ReadFile(filepath.Join(root, Document))
	if err != nil {
		t.Fatal(err)
	}
	today := time.Now().UTC().Format(time.DateOnly)
	want := strings.Replace(before, "| none |", "| "+today+": 3 of 3/all, kills; and more |", 1)
	want = strings.Replace(want, "| old |", "| "+today+": passed |", 1)
	if string(got) != want {
		t.Errorf("the document is\n%s\nwant\n%s", got, want)
	}
}

func TestHunt(t *testing.T) {
	t.Parallel()
	root := repository(t, before)
	var out strings.Builder
	err := Hunt(t.Context(), root, 2, &out)
	if err == nil || !strings.Contains(err.Error(), "0 of 2") ||
		strings.Count(out.String(), "--- FAIL: TestBroken, FAIL\tsample\n") != 2 {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// What is interrupted ends with the tests that it has started.
func TestHuntIsInterrupted(t *testing.T) {
	t.Parallel()
	root := repository(t, before)
	began := filepath.Join(t.TempDir(), "began")
	if err := os.WriteFile(filepath.Join(root, "hang_test.go"), []byte(`package sample

import (
	"os"
	"testing"
)

func TestHangs(t *testing.T) {
	if err := os.WriteFile("`+began+`", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	select {}
}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Hunt(ctx, root, 2, io.Discard) }()
	natstest.Await(t, "the test hangs", func() bool {
		_, err := os.Stat(began)
		return err == nil
	})
	interrupt()
	if err := natstest.Receive(t, "the hunt ends", ended); err == nil {
		t.Error("a hunt that was interrupted passed")
	}
}

func TestSelectRefusesWhatIsNoProof(t *testing.T) {
	t.Parallel()
	if _, err := Select("kills", "kill"); err == nil || !strings.Contains(err.Error(), `"kill"`) {
		t.Errorf("error: %v", err)
	}
}

func TestAsked(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "a_test.go"), []byte("prove.Only(t, \"soak\", \"why\")"),
		0o600); err != nil {
		t.Fatal(err)
	}
	got := Asked(root, []string{"docs/release/deb.go", "edge/web/router.go", "a_test.go", "removed_test.go"})
	want := []string{"race", "fuzz", "languages", "packages", "soak"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// The proofs are those that tests name, each has a row in the document, and the document has no other. What
// asks for a proof is in the repository.
func TestEachProofHasARow(t *testing.T) {
	t.Parallel()
	const root = "../../.."
	names := allNames()
	slices.Sort(names)
	if !slices.Equal(names, prove.Names) {
		t.Errorf("the proofs are %q, and package prove has %q", names, prove.Names)
	}
	document, err := os.ReadFile(filepath.Join(root, Document))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{"quarantine": true} // it may be empty
	rows := row.FindAllSubmatch(document, -1)
	for _, r := range rows {
		found[string(r[5])] = true
		if _, err := Select(string(r[5])); err != nil {
			t.Errorf("%s: %v", r[4], err)
		}
	}
	if many := bytes.Count(document, []byte("| `VERIFYD_PROVE=")); many != len(rows) {
		t.Errorf("%d rows of %d with a command are read", len(rows), many)
	}
	for _, p := range all {
		if !found[p.Name] {
			t.Errorf("%s has no row in %s", p.Name, Document)
		}
		for _, of := range p.For {
			if _, err := os.Stat(filepath.Join(root, of)); err != nil {
				t.Errorf("%s: %v", p.Name, err)
			}
		}
	}
}
