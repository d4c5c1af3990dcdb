package laws

import (
	"go/ast"
	"go/scanner"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The sizes that bind.
const (
	maxFiles      = 15  // of a package, without tests
	maxTestFiles  = 25  // of a folder
	maxMethods    = 25  // declared for a type, those that are not exported among them
	maxFileLines  = 400 // without tests
	maxColumns    = 110 // of a line of Go; a tab counts four
	minLines      = 150 // of code in a package
	manyArguments = 5   // of a function: from here on they are a value of their own
)

// What exceeds the sizes today. Each figure may only become smaller.
var (
	manyTestFiles = map[string]int{"cmd/verifyd": 88, "dispatcher": 33, "edge/api": 30, "edge/signin": 37}
	longCalls     = map[string]int{"the module": 112}
)

// Packages, types, files, lines and parameters are within their sizes. With -v it prints the functions that
// have many parameters.
func TestSizes(t *testing.T) {
	t.Parallel()
	files, tests, methods, long := map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}
	for _, s := range sources(t) {
		lines, wide := measure(s.text)
		for _, line := range wide {
			t.Errorf("%s:%d has more than %d columns", s.name, line, maxColumns)
		}
		if s.isTest() {
			tests[s.folder]++
			continue
		}
		files[s.folder]++
		if lines > maxFileLines {
			t.Errorf("%s has %d lines, more than %d", s.name, lines, maxFileLines)
		}
		for _, d := range s.code.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if ok && fn.Recv != nil {
				methods[s.folder+"."+strings.TrimSuffix(receiver(fn), ".")]++
			}
			if ok && fn.Type.Params.NumFields() >= manyArguments {
				long["the module"]++
				verbosef(t, "%s: %d parameters of %s", positions.Position(fn.Pos()),
					fn.Type.Params.NumFields(), receiver(fn)+fn.Name.Name)
			}
		}
	}
	atMost(t, "files", maxFiles, nil, files)
	atMost(t, "test files", maxTestFiles, manyTestFiles, tests)
	atMost(t, "declared methods", maxMethods, nil, methods)
	atMost(t, "functions with five or more parameters", 0, longCalls, long)
}

// verbosef is t.Logf with -v alone: a failure would otherwise be lost among the figures.
func verbosef(t *testing.T, format string, args ...any) {
	t.Helper()
	if testing.Verbose() {
		t.Logf(format, args...)
	}
}

// atMost fails the test if something has more of what is counted than the bound, or than today's figure if
// that is larger; and if today's figure can be lowered.
func atMost(t *testing.T, counted string, bound int, today, found map[string]int) {
	t.Helper()
	for name, n := range found {
		if may := max(bound, today[name]); n > may {
			t.Errorf("%s has %d %s; it may have %d", name, n, counted, may)
		}
	}
	for name, n := range today {
		if now := found[name]; now <= bound {
			t.Errorf("%s has %d %s, as few as all others: remove it from the table", name, now, counted)
		} else if now < n {
			t.Errorf("%s has %d %s now: write that into the table, in place of %d", name, now, counted, n)
		}
	}
}

// small are the packages of today that are small and give no reason. The list may only become shorter.
var small = []string{
	"cmd/verifyd/command/export",
	"dispatcher/callback/localca", "edge/account/branding",
	"edge/account/branding/logo", "edge/account/entry", "edge/account/input", "edge/account/keyuse",
	"edge/account/namespace", "edge/account/signing",
	"edge/branding", "edge/dashboard", "edge/dashboard/callbacks/kept",
	"edge/dashboard/form", "edge/dashboard/paths", "edge/origin",
	"edge/page/drawn", "edge/problem",
	"edge/redrive", "edge/rules", "natsconf/crashpoint", "natsconf/leadership",
	"natsconf/natstest/secured", "natsconf/natstest/virtual", "natsconf/once", "natsconf/scrub",
	"natsconf/wait", "sessions/base32", "sessions/failure", "sessions/hosts", "sessions/proof",
	"sessions/tracing", "sessions/wire",
}

// isReason is the sentence in the doc comment of a small package that says why it is one.
var isReason = regexp.MustCompile(`\bIt is small: \w`)

// A package has at least 150 lines of code, or says why not: a reader has to know that it is there, what it
// is called and who may import it. One that has tests alone, or nothing but its doc comment, is not judged.
// With -v it prints the lines of all packages.
func TestSmallPackagesHaveAReason(t *testing.T) {
	t.Parallel()
	if !slices.IsSorted(small) {
		t.Error("the list of small packages is not sorted")
	}
	lines, reasoned := map[string]int{}, map[string]bool{}
	for _, s := range sources(t) {
		if s.isTest() {
			continue
		}
		code, _ := linesOf(s.text)
		lines[s.folder] += len(code)
		doc := strings.Join(strings.Fields(s.code.Doc.Text()), " ")
		reasoned[s.folder] = reasoned[s.folder] || isReason.MatchString(doc)
	}
	for _, folder := range slices.Sorted(maps.Keys(lines)) {
		n := lines[folder]
		verbosef(t, "%5d  %s", n, folder)
		isSmall, listed := n > 1 && n < minLines, slices.Contains(small, folder)
		switch {
		case isSmall && !reasoned[folder] && !listed:
			t.Errorf("%s has %d lines of code, fewer than %d: move it into the package that uses it, or "+
				"write into its doc comment \"It is small: \" and why", folder, n, minLines)
		case listed && (!isSmall || reasoned[folder]):
			t.Errorf("%s has a reason to be small, or is not: remove it from the list", folder)
		case reasoned[folder] && !isSmall:
			t.Errorf("%s says why it is small, and has %d lines of code", folder, n)
		}
	}
	for _, folder := range small {
		if lines[folder] == 0 {
			t.Errorf("%s is gone: remove it from the list of small packages", folder)
		}
	}
}

// measure returns how many lines a file has, and which are too wide. A line with a raw string is allowed to
// be: its content is not the project's layout, and that of a struct tag cannot be wrapped. So may an address.
func measure(text []byte) (lines int, wide []int) {
	_, raw := linesOf(text)
	for line := range strings.Lines(string(text)) {
		lines++
		line = strings.ReplaceAll(strings.TrimSuffix(line, "\n"), "\t", "    ")
		if len([]rune(line)) > maxColumns && !raw[lines] && !strings.Contains(line, "//nolint") &&
			!addressAlone.MatchString(line) {
			wide = append(wide, lines)
		}
	}
	return lines, wide
}

var addressAlone = regexp.MustCompile(`^ *// https://\S+$`)

// linesOf returns the lines with code, and among them those with a raw string, or a part of one.
func linesOf(text []byte) (code, raw map[int]bool) {
	code, raw = map[int]bool{}, map[int]bool{}
	files := token.NewFileSet()
	file := files.AddFile("", files.Base(), len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0)
	for {
		at, kind, literal := s.Scan()
		if kind == token.EOF {
			return code, raw
		}
		if kind == token.SEMICOLON && literal == "\n" { // which the scanner has added
			continue
		}
		for i := range 1 + strings.Count(literal, "\n") {
			code[file.Line(at)+i] = true
			raw[file.Line(at)+i] = raw[file.Line(at)+i] || kind == token.STRING && literal[0] == '`'
		}
	}
}
