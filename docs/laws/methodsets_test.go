package laws

import (
	"errors"
	"go/ast"
	"go/types"
	"strings"
	"testing"
)

// maxMethodSet is how many exported methods a type may have, with those of what it embeds.
const maxMethodSet = 30

// wideTypes are the types that have more today: who holds one can do all of that. Each figure may only become
// smaller.
var wideTypes = map[string]int{
	"cmd/verifyd-bench/bench/load.Sessions": 83,
	"edge/account/accountstore.Store":       71,
	"natsconf.Conn":                         35,
	"sessions/erasure.Eraser":               31,
	"sessions/lists.Lists":                  40,
	"sessions/records.Writer":               42,
	"sessions/recovery.Recovery":            48,
	"sessions/store.Events":                 32,
	"sessions/store.IdentityHolds":          32,
	"sessions/store.Leases":                 45,
	"sessions/store.Proofs":                 46,
	"sessions/store.Reservations":           47,
	"sessions/store.Store":                  79,
}

// A type does not offer more than its users need: embedding adds to a type as much as declaring does.
func TestMethodSets(t *testing.T) {
	t.Parallel()
	all := typeChecked{code: map[string][]*ast.File{}, packages: map[string]*types.Package{}}
	for _, s := range sources(t) {
		if !s.isTest() {
			all.code[s.folder] = append(all.code[s.folder], s.code)
		}
	}
	sets := map[string]int{}
	for folder := range all.code {
		pkg, err := all.Import("verifyd/" + folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range pkg.Scope().Names() {
			if of, ok := pkg.Scope().Lookup(name).(*types.TypeName); ok && !of.IsAlias() {
				sets[folder+"."+name] = exportedMethods(of.Type())
			}
		}
	}
	atMost(t, "exported methods, with those that it embeds", maxMethodSet, wideTypes, sets)
}

// exportedMethods counts the exported methods of a type, or of a pointer to it.
func exportedMethods(of types.Type) (n int) {
	if !types.IsInterface(of) {
		of = types.NewPointer(of)
	}
	for method := range types.NewMethodSet(of).Methods() {
		if method.Obj().Exported() {
			n++
		}
	}
	return n
}

// typeChecked is what the packages of the project declare, by their folders. What packages of others declare
// is not known: what a type gets by embedding one of theirs is not counted.
type typeChecked struct {
	code     map[string][]*ast.File
	packages map[string]*types.Package
}

var errNotImported = errors.New("not imported")

// Import checks the package, unless it has been, and the packages that it imports.
func (c typeChecked) Import(name string) (*types.Package, error) {
	folder, own := strings.CutPrefix(name, "verifyd/")
	if !own {
		return nil, errNotImported
	}
	if c.packages[folder] == nil {
		check := types.Config{
			Importer: c, IgnoreFuncBodies: true, FakeImportC: true,
			Error: func(error) {}, // about what is not known
		}
		c.packages[folder], _ = check.Check(name, positions, c.code[folder], nil)
	}
	return c.packages[folder], nil
}
