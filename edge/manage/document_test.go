package manage

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"verifyd/edge/apidoc/openapitest"
	"verifyd/edge/problem"
)

// The routes and the document's operations are the same, each with the scope that it requires.
func TestDocumentHasEveryOperation(t *testing.T) {
	doc, err := described()
	if err != nil {
		t.Fatal(err)
	}
	routed := map[string]string{}
	for _, o := range (&Handler{}).operations() {
		routed[o.method+" "+o.path] = string(o.scope)
	}
	written := map[string]string{}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			scope, _ := op.Extensions["x-scope"].(string)
			written[method+" "+path] = scope
		}
	}
	if !maps.Equal(routed, written) {
		t.Errorf("routes   %v\ndocument %v", routed, written)
	}
}

func TestDocCommentListsTheRoutes(t *testing.T) {
	t.Parallel()
	openapitest.Routes(t, "doc.go", (&Handler{}).Routes())
}

// Every code in the document exists, with its status; and each of the interface's own is in the document.
func TestDocumentNamesTheCodes(t *testing.T) {
	doc, err := described()
	if err != nil {
		t.Fatal(err)
	}
	named := map[problem.Code]bool{}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			for status, r := range op.Responses.Map() {
				for _, code := range openapitest.Codes(r.Value) {
					named[problem.Code(code)] = true
					if got := problem.Code(code).Status(); status != statusText(got) {
						t.Errorf("%s %s: %s has the status %d, not %s", method, path, code, got, status)
					}
				}
			}
		}
	}
	for code := range problem.ManagementCodes() {
		if !named[code] {
			t.Errorf("no operation answers %s", code)
		}
	}
	if len(named) < 10 {
		t.Errorf("the document names %v", slices.Sorted(maps.Keys(named)))
	}
}

// SECURITY.md names all that the holder of a token with accounts:write sets of an account.
func TestWhatAccountsWriteSetsIsStated(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	_, row, _ := strings.Cut(string(text), "| `accounts:write` |")
	row, _, _ = strings.Cut(row, "\n")
	doc, err := described()
	if err != nil {
		t.Fatal(err)
	}
	body := doc.Paths.Value(pathAccount).Patch.RequestBody.Value.Content["application/json"].Schema.Value
	for name := range body.Properties {
		if !strings.Contains(row, "`"+name+"`") {
			t.Errorf("%s is missing in%s", name, row)
		}
	}
}
