package naming

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// maxNearest bounds the names that are suggested for one that no account has.
const maxNearest = 3

// Nearest returns those quoted of the names that differ least from one: by a third of its letters at most, or
// by the text around it.
func Nearest(name string, names []string) []string {
	type candidate struct {
		name string
		off  int
	}
	var near []candidate
	wanted := []rune(strings.ToLower(name))
	for _, n := range names {
		lower := strings.ToLower(n)
		off := distance(wanted, []rune(lower))
		if off <= max(2, len(wanted)/3) || len(wanted) > 2 && strings.Contains(lower, string(wanted)) {
			near = append(near, candidate{strconv.Quote(n), off})
		}
	}
	slices.SortStableFunc(near, func(a, b candidate) int { return cmp.Compare(a.off, b.off) })
	near = near[:min(len(near), maxNearest)]
	nearest := make([]string, len(near))
	for i, c := range near {
		nearest[i] = c.name
	}
	return nearest
}

// distance counts the letters to add, remove or change to get from one text to another (Levenshtein).
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
