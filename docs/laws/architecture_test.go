package laws

import (
	"go/ast"
	"os"
	"regexp"
	"strings"
	"testing"
)

const (
	architecture = "../ARCHITECTURE.md"
	guarantees   = "../GUARANTEES.md"
	// maxSitting is how many lines can be read in one sitting.
	maxSitting = 150
)

var (
	// named is what is in backquotes: a package, or a function, type or method of one.
	named = regexp.MustCompile("`((?:cmd|edge|sessions|dispatcher|natsconf)(?:/[a-z]+)*)((?:\\.\\w+){0,2})`")
	// documented is the number of names below which the expression no longer finds them.
	documented = 40
)

// Every package and function in docs/ARCHITECTURE.md exists.
func TestArchitectureNamesWhatThereIs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(architecture)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]map[string]bool{}
	found := named.FindAllStringSubmatch(string(text), -1)
	if len(found) < documented {
		t.Errorf("only %d names are found", len(found))
	}
	for _, m := range found {
		folder, name := m[1], strings.TrimPrefix(m[2], ".")
		if known[folder] == nil {
			known[folder] = declarations(t, folder)
		}
		if !known[folder][name] {
			t.Errorf("%s names %s, which is not there", architecture, m[1]+m[2])
		}
	}
}

// Documents that are to be read as a whole are short enough.
func TestReadInOneSitting(t *testing.T) {
	t.Parallel()
	for _, path := range []string{architecture, guarantees} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), "\n"); n > maxSitting {
			t.Errorf("%s has %d lines, more than %d", path, n, maxSitting)
		}
	}
}

// declarations returns what a package declares: "Func", "Type" and "Type.Method", and "" if there is such a
// package.
func declarations(t *testing.T, folder string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, s := range sources(t) {
		if s.folder != folder || s.isTest() {
			continue
		}
		names[""] = true
		for _, d := range s.code.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				names[receiver(d)+d.Name.Name] = true
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if s, ok := spec.(*ast.TypeSpec); ok {
						names[s.Name.Name] = true
					}
				}
			}
		}
	}
	return names
}

// receiver returns the type of a method's receiver, and a dot.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	of := d.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	if generic, ok := of.(*ast.IndexExpr); ok {
		of = generic.X
	}
	if id, ok := of.(*ast.Ident); ok {
		return id.Name + "."
	}
	return ""
}
