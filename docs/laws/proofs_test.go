package laws

import (
	"bytes"
	"go/ast"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"verifyd/natsconf/natstest/prove"
)

var (
	// proofRow is a command of a row in docs/EVIDENCE.md that runs proofs.
	proofRow = regexp.MustCompile("`VERIFYD_PROVE=([a-z,]+) ([^`]*)`")
	rowRuns  = regexp.MustCompile(`-run '([^']*)'`)
)

// marks are functions of other packages whose callers belong to a proof: they call prove.Only.
var marks = map[string]string{
	"natstest.StartTrio": "cluster", "natstest.StartCluster": "cluster", "natstest.NewDisk": "disk",
	"chromiumtest.Start": "browser",
}

// A test that is a proof is run by a row of its proofs: one that no row runs would never be run.
func TestEachProofIsRunByARow(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../EVIDENCE.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := proofRow.FindAllSubmatch(document, -1)
	packages := map[string]map[string]calls{}
	for _, s := range sources(t) {
		if !s.isTest() {
			continue
		}
		if packages[s.folder] == nil {
			packages[s.folder] = map[string]calls{}
		}
		for _, d := range s.code.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				packages[s.folder][f.Name.Name] = callsOf(f)
			}
		}
	}
	found, used := 0, map[string]bool{}
	for folder, functions := range packages {
		for name := range functions {
			proofs := map[string]bool{}
			if strings.HasPrefix(name, "Test") && name != "TestMain" {
				collect(functions, name, proofs, map[string]bool{})
			}
			for p := range proofs {
				used[p] = true
			}
			if len(proofs) == 0 {
				continue
			}
			found++
			if !slices.ContainsFunc(rows, func(r [][]byte) bool {
				return runs(string(r[1]), string(r[2]), folder, name, proofs)
			}) {
				t.Errorf("no row of ../EVIDENCE.md runs %s: %s (%s)", folder, name,
					strings.Join(slices.Sorted(maps.Keys(proofs)), ","))
			}
		}
	}
	if found < 80 {
		t.Errorf("only %d proofs are found", found)
	}
	for _, name := range prove.Names {
		if !used[name] && !slices.Contains([]string{"fuzz", "quarantine", "race"}, name) {
			t.Errorf("no test belongs to the proof %s", name)
		}
	}
}

// quarantined is the call of a test that is upset by the machine, with its date.
var quarantined = regexp.MustCompile(`prove\.Only\(\w+, "quarantine",\s+"([^"]*)`)

// A test stays in quarantine for two weeks at most, and says since when and why.
func TestQuarantineEnds(t *testing.T) {
	t.Parallel()
	const longest = 14 * 24 * time.Hour
	if err := eachFile("_test.go", func(name, file string) error {
		code, err := os.ReadFile(file)
		all := quarantined.FindAllSubmatch(code, -1)
		if bytes.Count(code, []byte(`"quarantine"`)) != len(all) && !strings.HasPrefix(name, "docs/laws/") &&
			!strings.HasPrefix(name, "cmd/verifyd-bench/proofs/") {
			t.Errorf("%s: a quarantine without its text beside it", name)
		}
		for _, m := range all {
			day, why, _ := strings.Cut(string(m[1]), ": ")
			since, err := time.Parse(time.DateOnly, day)
			switch {
			case err != nil || why == "":
				t.Errorf("%s: a test in quarantine says %q, not \"2026-12-01: why\"", name, m[1])
			case time.Since(since) > longest, time.Until(since) > 0:
				t.Errorf("%s: a test is in quarantine since %s (%s), which is too long", name, day, why)
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// runs reports whether a row's command runs a test, under all of its proofs.
func runs(names, command, folder, test string, proofs map[string]bool) bool {
	for p := range proofs {
		if !slices.Contains(strings.Split(names, ","), p) {
			return false
		}
	}
	if m := rowRuns.FindStringSubmatch(command); m != nil && !regexp.MustCompile(m[1]).MatchString(test) {
		return false
	}
	return slices.ContainsFunc(strings.Fields(command), func(word string) bool {
		of, all := strings.CutSuffix(strings.TrimPrefix(word, "./"), "/...")
		return strings.HasPrefix(word, "./") && (of == folder || all && strings.HasPrefix(folder, of+"/"))
	})
}

// calls are what a function of a test calls: functions and methods by their names, and proofs.
type calls struct {
	functions []string
	proofs    []string
}

func callsOf(f *ast.FuncDecl) (c calls) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if of, ok := n.Fun.(*ast.SelectorExpr); ok {
				called := of.Sel.Name
				if x, ok := of.X.(*ast.Ident); ok {
					called = x.Name + "." + called
				}
				if p, ok := marks[called]; ok {
					c.proofs = append(c.proofs, p)
				}
				if called == "prove.Only" {
					if name, ok := n.Args[1].(*ast.BasicLit); ok {
						c.proofs = append(c.proofs, strings.Trim(name.Value, `"`))
					}
				}
			}
		case *ast.Ident: // also of a function that is not called but passed on
			c.functions = append(c.functions, n.Name)
		}
		return true
	})
	return c
}

// collect adds the proofs of a function and of those that it uses, in the same package.
func collect(functions map[string]calls, name string, proofs, seen map[string]bool) {
	if seen[name] {
		return
	}
	seen[name] = true
	for _, p := range functions[name].proofs {
		proofs[p] = true
	}
	for _, f := range functions[name].functions {
		collect(functions, f, proofs, seen)
	}
}
