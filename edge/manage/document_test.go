package manage

import (
	"maps"
	"slices"
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
