package laws

import (
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
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

// size has the measures of a package.
type size struct{ files, exported, methods int }

// larger are the packages that exceed the sizes, with their sizes: they may only become smaller.
var larger = map[string]size{
	"edge/client": {15, 69, 25}, // the codes of all problems are names
}

// Packages, types, files and lines are within their sizes. With -v it prints the sizes of all packages.
func TestSizes(t *testing.T) {
	t.Parallel()
	sizes := map[string]*size{}
	methods := map[string]int{} // by package and type
	err := eachFile(".go", func(name, path string) error {
		lines, wide, err := measure(path)
		if err != nil {
			return err
		}
		for _, line := range wide {
			t.Errorf("%s:%d has more than %d columns", name, line, maxColumns)
		}
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
	for folder, s := range sizes {
		may := size{maxFiles, maxExported, maxMethods}
		if l, ok := larger[folder]; ok {
			may = l
		}
		if testing.Verbose() {
			t.Logf("%-28s %3d files, %3d exported names, at most %3d methods of a type", folder, s.files,
				s.exported, s.methods)
		}
		if s.files > may.files || s.exported > may.exported || s.methods > may.methods {
			t.Errorf("%s has %d files, %d exported names, %d methods of one type; it may have %d, %d, %d",
				folder, s.files, s.exported, s.methods, may.files, may.exported, may.methods)
		}
	}
}

// eachFile calls do with each file of the project that has the extension, by its name from the root and its
// path from here.
func eachFile(ext string, do func(name, path string) error) error {
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
		if entry.IsDir() || !strings.HasSuffix(name, ext) {
			return nil
		}
		return do(filepath.ToSlash(name), path)
	})
}

// measure returns how many lines a file has, and which are too wide. A line with a raw string is allowed to
// be: its content is not the project's layout, and that of a struct tag cannot be wrapped. So may an address.
func measure(path string) (lines int, wide []int, err error) {
	source, err := os.ReadFile(path)
	if err != nil {
		return 0, nil, err
	}
	raw := rawLines(source)
	for text := range strings.Lines(string(source)) {
		lines++
		text = strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\t", "    ")
		if len([]rune(text)) > maxColumns && !raw[lines] && !strings.Contains(text, "//nolint") &&
			!addressAlone.MatchString(text) {
			wide = append(wide, lines)
		}
	}
	return lines, wide, nil
}

var addressAlone = regexp.MustCompile(`^ *// https://\S+$`)

// rawLines returns the lines with a raw string, or a part of one.
func rawLines(source []byte) map[int]bool {
	lines := map[int]bool{}
	files := token.NewFileSet()
	file := files.AddFile("", files.Base(), len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, 0)
	for {
		at, kind, text := s.Scan()
		switch {
		case kind == token.EOF:
			return lines
		case kind == token.STRING && text[0] == '`':
			for i := range 1 + strings.Count(text, "\n") {
				lines[file.Line(at)+i] = true
			}
		}
	}
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
