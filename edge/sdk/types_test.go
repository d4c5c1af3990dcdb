package sdk

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"verifyd/natsconf/natstest/prove"
)

// declarations are the output of declared.cjs.
type declarations struct {
	surface

	Exports []string            `json:"exports"` // what exists at run time
	Methods map[string][]string `json:"methods"` // of classes
	All     map[string][]string `json:"all"`     // types too, with their members
}

// The TypeScript declarations compile strictly, so does a program that uses all of them, and its deliberate
// errors are found. They export what the JavaScript exports, and match the document.
func TestTypeScript(t *testing.T) {
	prove.Only(t, "languages", "it runs a type checker")
	t.Parallel()
	tsc := prove.Program(t, "the TypeScript compiler; Debian has it in node-typescript",
		"tsc")
	const sample = "sample.mts"
	k, dir := kits[0], t.TempDir()
	for to, from := range map[string]string{ // where npm puts them
		sample: "testdata", k.surface: "testdata", "node_modules/verifyd/package.json": "javascript",
		"node_modules/verifyd/index.js": "javascript", "node_modules/verifyd/index.d.ts": "javascript",
	} {
		put(t, filepath.Join(dir, to), read(t, filepath.Join(from, filepath.Base(to))))
	}
	run(t, dir, tsc, "--strict", "--noEmit", "--target", "ES2022", "--module", "NodeNext",
		"--moduleResolution", "NodeNext", "--lib", "ES2022,DOM,DOM.Iterable", sample)

	tsc, err := filepath.EvalSymlinks(tsc)
	if err != nil {
		t.Fatal(err)
	}
	script, err := filepath.Abs(filepath.Join("testdata", "declared.cjs"))
	if err != nil {
		t.Fatal(err)
	}
	var declared declarations
	k.says(t, dir, &declared, "", script, filepath.Join(filepath.Dir(tsc), "..", "lib", "typescript.js"),
		filepath.Join("node_modules", "verifyd", "index.d.ts"))
	var there declarations
	k.says(t, dir, &there, "", k.surface)
	if len(there.Exports) < 5 {
		t.Errorf("it exports %v", there.Exports)
	}
	same(t, "exports", declared.Exports, there.Exports)
	for class, methods := range there.Methods {
		same(t, class, declared.Methods[class], methods)
	}
	declared.judge(t, k.name, nil)
	written := read(t, filepath.Join(dir, sample))
	if len(declared.All) < 15 {
		t.Errorf("it declares %v", declared.All)
	}
	for name, members := range declared.All {
		uses(t, sample, written, append(members, name))
	}
}

// Python's package has types that a strict checker accepts, and so has a program that uses all of it; its
// deliberate errors are found.
func TestPythonTypes(t *testing.T) {
	prove.Only(t, "languages", "it runs a type checker")
	t.Parallel()
	mypy := prove.Program(t, "mypy, which checks types; Debian has it", "mypy")
	const sample = "sample.py"
	run(t, "python", mypy, "--strict", "--cache-dir", t.TempDir(), "verifyd",
		filepath.Join("..", "testdata", sample))
	exported := regexp.MustCompile(`(?s)__all__ = \[(.*?)\]`).FindStringSubmatch(
		read(t, filepath.Join("python", "verifyd", "__init__.py")))
	if exported == nil {
		t.Fatal("the package does not say what it exports")
	}
	var names []string
	if err := json.Unmarshal([]byte("["+strings.TrimRight(strings.TrimSpace(exported[1]), ",")+"]"),
		&names); err != nil || len(names) < 10 {
		t.Fatalf("%q, %v", exported[1], err)
	}
	uses(t, sample, read(t, filepath.Join("testdata", sample)), names)
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// uses checks that a sample has every name.
func uses(t *testing.T, sample, written string, names []string) {
	t.Helper()
	for _, name := range names {
		if !regexp.MustCompile(`\b` + name + `\b`).MatchString(written) {
			t.Errorf("testdata/%s does not use %s", sample, name)
		}
	}
}

// same checks that two lists have the same names.
func same(t *testing.T, what string, declared, there []string) {
	t.Helper()
	slices.Sort(declared)
	slices.Sort(there)
	if !slices.Equal(declared, there) {
		t.Errorf("%s: declared are %v, there are %v", what, declared, there)
	}
}
