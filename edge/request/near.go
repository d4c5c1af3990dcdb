package request

import (
	"slices"
	"strings"

	"verifyd/edge/problem"
	"verifyd/edge/problem/fault"
)

// Near notes a fault for every member whose name is not one of these, but is probably meant to be: it differs
// in case and underscores only, or in a letter or two. Other names are accepted. It is called last: the fault
// of a required member that is missing has named what is near.
func (m *Members) Near(names ...string) {
	var others []string
	for name := range m.values {
		if len(name) <= MaxShownName && !slices.Contains(names, name) {
			others = append(others, name)
		}
	}
	slices.Sort(others)
	for _, other := range others {
		i := slices.IndexFunc(names, func(name string) bool { return near(other, name) })
		if i >= 0 && !m.misses(names[i]) {
			m.Faultf(other, fault.Unknown, "there is no such field; did you mean %s?", names[i])
		}
	}
}

// misses reports whether a required member is known to be missing.
func (m *Members) misses(name string) bool {
	return slices.ContainsFunc(m.Faults, func(f problem.Fault) bool {
		return f.Field == name && f.Code == fault.Missing
	})
}

// near reports whether a name is probably meant to be a known one. Short names that differ in two letters are
// others.
func near(name, known string) bool {
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "_", "")) }
	limit := 1
	if len(known) >= 8 {
		limit = 2
	}
	return plain(name) == plain(known) || distance(name, known) <= limit
}

// distance counts the letters that are added, left out, replaced, or exchanged with the next one (optimal
// string alignment).
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
		for j := 1; j <= len(b); j++ {
			if i == 0 {
				rows[0][j] = j
				continue
			}
			replaced := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			rows[i][j] = min(replaced, rows[i-1][j]+1, rows[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
