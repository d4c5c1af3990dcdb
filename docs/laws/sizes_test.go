package laws

import (
	"bufio"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The sizes that bind.
const (
	maxFiles     = 15  // of a package, without tests
	maxExported  = 40  // names of a package
	maxMethods   = 25  // of a type
	maxFileLines = 400 // without tests
	maxColumns   = 110 // of a line of Go; a tab counts four
)

// maxWide is how many lines of Go are wider than maxColumns: it may only fall.
const maxWide = 291

// size is what a package measures.
type size struct{ files, exported, methods int }

// larger are the packages that do not keep to the sizes yet, and how large they are: they may become smaller.
var larger = map[string]size{
	"edge/client": {15, 69, 25}, // the codes of all problems are names
}

// Packages, types, files and lines keep to their sizes. With -v it prints the sizes of all packages.
func TestSizes(t *testing.T) {
	t.Parallel()
	sizes := map[string]*size{}
	methods := map[string]int{} // by package and type
	wideLines := 0
	err := eachGoFile(func(name, path string) error {
		lines, wide, err := measure(path)
		if err != nil {
			return err
		}
		for _, line := range wide {
			t.Logf("%s:%d has more than %d columns", name, line, maxColumns)
		}
		wideLines += len(wide)
		if strings.HasSuffix(name, "_test.go") {
			return nil
		}
		if lines > maxFileLines {
			t.Errorf("%s has %d lines, more than %d", name, lines, maxFileLines)
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		folder := filepath.ToSlash(filepath.Dir(name))
		s := sizes[folder]
		if s == nil {
			s = &size{}
			sizes[folder] = s
		}
		s.files++
		for _, d := range f.Decls {
			s.exported += exported(d)
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil {
				of := folder + "." + receiver(fn)
				methods[of]++
				s.methods = max(s.methods, methods[of])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if wideLines > maxWide {
		t.Errorf("%d lines are too wide; there may be %d", wideLines, maxWide)
	}
	for folder, s := range sizes {
		may := size{maxFiles, maxExported, maxMethods}
		if l, ok := larger[folder]; ok {
			may = l
		}
		t.Logf("%-28s %3d files, %3d exported names, at most %3d methods of a type", folder, s.files,
			s.exported, s.methods)
		if s.files > may.files || s.exported > may.exported || s.methods > may.methods {
			t.Errorf("%s has %d files, %d exported names, %d methods of one type; it may have %d, %d, %d",
				folder, s.files, s.exported, s.methods, may.files, may.exported, may.methods)
		}
	}
}

// eachGoFile calls do with each Go file of the project, by its name from the root and its path from here.
func eachGoFile(do func(name, path string) error) error {
	root := filepath.Join("..", "..")
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && name != "." {
			return filepath.SkipDir
		}
		if entry.IsDir() || filepath.Ext(name) != ".go" {
			return nil
		}
		return do(filepath.ToSlash(name), path)
	})
}

// measure returns how many lines a file has, and which are too wide. A line of a raw string may be: its
// content is not the project's layout.
func measure(path string) (lines int, wide []int, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = f.Close() }()
	for s := bufio.NewScanner(f); s.Scan(); {
		lines++
		text := strings.ReplaceAll(s.Text(), "\t", "    ")
		if len([]rune(text)) > maxColumns && !strings.Contains(text, "//nolint") {
			wide = append(wide, lines)
		}
	}
	return lines, wide, nil
}

// exported counts the exported names that a declaration makes at the top of its package, without methods.
func exported(d ast.Decl) (n int) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil && d.Name.IsExported() {
			n++
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() {
					n++
				}
			case *ast.ValueSpec:
				for _, name := range s.Names {
					if name.IsExported() {
						n++
					}
				}
			}
		}
	}
	return n
}
