package request

import (
	"maps"
	"slices"
	"strings"

	"verifyd/edge/problem"
)

// Misspelt notes a fault for every member whose name is not this one, but is probably meant to be.
func (m *Members) Misspelt(name string) {
	for _, other := range m.lookalikes(name) {
		m.Faultf(other, problem.FaultUnknown, "there is no such field; did you mean %s?", name)
	}
}

// lookalikes returns the names of members that are nearly this one, sorted.
func (m *Members) lookalikes(name string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(m.values)), func(other string) bool {
		return other == name || len(other) > MaxShownName || !near(other, name)
	})
}

// near reports whether a name differs from another in case and underscores only, or in one letter that is
// added, left out, replaced, or exchanged with the next one.
func near(a, b string) bool {
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "_", "")) }
	if plain(a) == plain(b) {
		return true
	}
	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for a != "" && b != "" && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return max(len(a), len(b)) <= 1 || len(a) == 2 && len(b) == 2 && a[0] == b[1] && a[1] == b[0]
}
