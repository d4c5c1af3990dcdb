package laws

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

// maxBackUp is how many references may point back up in a package whose files are read in their best order.
const maxBackUp = 10

// The files of each package have an order in which nearly everything that one of them uses is declared in it
// or further down: what a package does comes first, then what it is made of. A reference is a use, in another
// file, of a name of the package, or of a method that is not exported. With -v it prints the packages in
// which references point back up.
func TestFilesReadDownwards(t *testing.T) {
	t.Parallel()
	packages := map[string]references{}
	for _, s := range sources(t) {
		if !s.isTest() {
			packages[s.folder] = append(packages[s.folder], s)
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(packages)) {
		r := packages[folder]
		counts := r.between()
		n, order := backUp(counts)
		if n > 0 {
			verbosef(t, "%3d  %s", n, folder)
		}
		if n > maxBackUp {
			t.Errorf("%s: %d references point back up, %d at most, in the best order of its files:\n%s",
				folder, n, maxBackUp, r.show(counts, order))
		}
	}
}

// references finds the references between the files of a package.
type references []source

// show lists the files in an order, each with its references that point back up.
func (r references) show(counts [][]int, order []int) string {
	var b strings.Builder
	for at, from := range order {
		b.WriteString(path.Base(r[from].name))
		for _, to := range order[:at] {
			if n := counts[from][to]; n > 0 {
				fmt.Fprintf(&b, ", %d to %s", n, path.Base(r[to].name))
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// between returns how often each file refers to each other one.
func (r references) between() [][]int {
	counts, files := make([][]int, len(r)), make([]*ast.File, len(r))
	for i, s := range r {
		counts[i], files[i] = make([]int, len(r)), s.code
	}
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	// What other packages declare is not known, and not needed.
	check := types.Config{Importer: none{}, Error: func(error) {}, FakeImportC: true}
	pkg, _ := check.Check("p", positions, files, &info)
	for id, used := range info.Uses {
		if used.Pkg() != pkg || !isCounted(pkg, used) {
			continue
		}
		if from, to := r.fileOf(id.Pos()), r.fileOf(used.Pos()); from != to {
			counts[from][to]++
		}
	}
	return counts
}

func isCounted(pkg *types.Package, used types.Object) bool {
	if fn, ok := used.(*types.Func); ok && fn.Signature().Recv() != nil {
		return !fn.Exported()
	}
	return used.Parent() == pkg.Scope()
}

func (r references) fileOf(at token.Pos) int {
	return slices.IndexFunc(r, func(s source) bool { return s.code.FileStart <= at && at <= s.code.FileEnd })
}

// none knows no package.
type none struct{}

func (none) Import(string) (*types.Package, error) { return nil, errNotImported }

// backUp returns the lowest number of references that point back up, and an order of the files that has it.
// It looks at each set of files once: the last of them, which refers to the others, may be any.
func backUp(counts [][]int) (least int, order []int) {
	all := 1<<len(counts) - 1
	best, last := make([]int, all+1), make([]int, all+1)
	for set := 1; set <= all; set++ {
		best[set] = -1
		for i := range counts {
			if set>>i&1 == 0 {
				continue
			}
			above := set &^ (1 << i)
			n := best[above]
			for j := range counts {
				if above>>j&1 == 1 {
					n += counts[i][j]
				}
			}
			if best[set] < 0 || n < best[set] {
				best[set], last[set] = n, i
			}
		}
	}
	for set := all; set > 0; set &^= 1 << last[set] {
		order = append(order, last[set])
	}
	slices.Reverse(order)
	return best[all], order
}
