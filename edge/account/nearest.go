package account

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxNearest bounds the names that are offered for one that nobody has.
const maxNearest = 3

// listThem says how accounts are found.
const listThem = "list them with: verifyd account list"

// noAccount is the error for a name that nobody has, with the names that may have been meant.
func (s *Store) noAccount(ctx context.Context, name string) error {
	accounts, err := s.Accounts(ctx)
	if err != nil { // the names are a help, and no more
		return fmt.Errorf("%w: %q; %s", ErrNoAccount, name, listThem)
	}
	near := nearest(name, accounts)
	if len(near) == 0 {
		return fmt.Errorf("%w: %q; %s", ErrNoAccount, name, listThem)
	}
	return fmt.Errorf("%w: %q; there is %s; %s", ErrNoAccount, name, strings.Join(near, ", "), listThem)
}

// nearest returns the quoted names that differ least from one: by a third of its letters at most, or by what
// stands around it.
func nearest(name string, accounts []Account) []string {
	type candidate struct {
		name string
		off  int
	}
	var near []candidate
	wanted := []rune(strings.ToLower(name))
	for _, a := range accounts {
		lower := strings.ToLower(a.Name)
		off := distance(wanted, []rune(lower))
		if off <= max(2, len(wanted)/3) || len(wanted) > 2 && strings.Contains(lower, string(wanted)) {
			near = append(near, candidate{strconv.Quote(a.Name), off})
		}
	}
	slices.SortStableFunc(near, func(a, b candidate) int { return cmp.Compare(a.off, b.off) })
	var names []string
	for _, c := range near[:min(len(near), maxNearest)] {
		names = append(names, c.name)
	}
	return names
}

// distance counts the letters to add, take away or change that lead from one text to another (Levenshtein).
func distance(a, b []rune) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i, x := range a {
		diagonal := row[0]
		row[0] = i + 1
		for j, y := range b {
			change := diagonal
			if x != y {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
