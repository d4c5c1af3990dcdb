package dispatcher

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"verifyd/sessions"
	"verifyd/sessions/modelcheck"
)

// FactSeen returns the model's name of a stored fact of an attempt.
func FactSeen(kind string, n int, what string) string {
	return strings.TrimSpace(fmt.Sprintf("%s %d %s", kind, n, what))
}

// ModelAllows reports whether the model of a delivery allows that exactly these facts were stored, in this
// order, if every write is answered.
func ModelAllows(policy sessions.Policy, seen []string) error {
	m := newModel(world{
		workers: 2, room: modelAttempts, policy: policy, resends: 1, skews: []uint8{0},
	}, realDecisions())
	return modelcheck.Follow(m.check(), seen, func(from, to deliveryState) string {
		for n := range to.claim {
			switch code := to.result[n] & (verdictMask | hasNext); {
			case from.claim[n] == 0 && to.claim[n] != 0 && to.claim[n]&givesUp != 0:
				return FactSeen("claim", n, "to give up")
			case from.claim[n] == 0 && to.claim[n] != 0:
				return FactSeen("claim", n, "")
			case from.result[n] == 0 && code&hasNext != 0:
				return FactSeen("result", n, string(modelVerdicts[code&verdictMask])+", again")
			case from.result[n] == 0 && code != 0:
				return FactSeen("result", n, string(modelVerdicts[code&verdictMask]))
			case (from.resend^to.resend)&(1<<n) != 0:
				return FactSeen("resend", n, "")
			}
		}
		return ""
	})
}

// The functions that the steps of the model represent exist, under these names.
func TestModelNamesTheCode(t *testing.T) {
	t.Parallel()
	declared := map[string]bool{}
	for _, folder := range []string{
		".", "callback", "../sessions/records", "../sessions/recovery", "../natsconf/once",
	} {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range f.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || fn.Recv == nil || strings.HasSuffix(name, "_test.go") {
					continue
				}
				of := fn.Recv.List[0].Type
				if p, ok := of.(*ast.StarExpr); ok {
					of = p.X
				}
				if of, ok := of.(*ast.Ident); ok {
					declared[of.Name+"."+fn.Name.Name] = true
				}
			}
		}
	}
	source, err := os.ReadFile("model_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(source), "stands for")
	table, _, _ = strings.Cut(table, "// What may happen:")
	names := regexp.MustCompile(`\b[A-Za-z]+\.[A-Za-z]+\b`).FindAllString(table, -1)
	for _, name := range names {
		if !declared[name] {
			t.Errorf("the model names %s, which is not there", name)
		}
	}
	if len(names) < 15 {
		t.Errorf("the model names %d functions", len(names))
	}
}
