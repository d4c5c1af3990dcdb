package limit

import "testing"

// What is being made counts until it is listed; what was not made does not count any more.
func TestMaking(t *testing.T) {
	m, listed := NewMaking(), 1
	begin := func(whose string, want bool) func() {
		t.Helper()
		end, ok := m.Begin(whose, 3, func() int { return listed })
		if ok != want {
			t.Errorf("%s may make one more: %t, with %d listed and %v being made", whose, ok, listed, m.under)
		}
		return end
	}
	first, second := begin("ada", true), begin("ada", true)
	begin("ada", false)() // ends nothing
	begin("ada", false)
	other := begin("bob", true)
	listed++
	first()
	begin("ada", false)
	second() // nothing was made
	third := begin("ada", true)
	listed++
	third()
	begin("ada", false)
	other()
	if len(m.under) != 0 {
		t.Errorf("still being made: %v", m.under)
	}
}
