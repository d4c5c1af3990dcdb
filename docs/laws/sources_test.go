package laws

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// source is a Go file of the project, by its name and folder from the root.
type source struct {
	name, folder string
	text         []byte
	code         *ast.File
}

func (s source) isTest() bool { return strings.HasSuffix(s.name, "_test.go") }

// positions are those in all sources.
var positions = token.NewFileSet()

// parsed are the sources. They are parsed once, for all tests, which must not change them.
var parsed = sync.OnceValues(func() (all []source, err error) {
	err = eachFile(".go", func(name, file string) error {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		code, err := parser.ParseFile(positions, name, text, parser.ParseComments|parser.SkipObjectResolution)
		all = append(all, source{name, path.Dir(name), text, code})
		return err
	})
	return all, err
})

// fewestSources is the number of Go files below which they are no longer found.
const fewestSources = 900

// sources returns all Go files of the project.
func sources(t *testing.T) []source {
	t.Helper()
	all, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < fewestSources {
		t.Fatalf("only %d Go files are found", len(all))
	}
	return all
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
