package access

import (
	"strings"
	"testing"
)

func TestWhatRolesMayDo(t *testing.T) {
	for _, c := range []struct {
		action Action
		who    string // o d v
	}{
		{ActionView, "odv"}, {ActionExport, "odv"}, {ActionAudit, "od"}, {ActionSend, "od"},
		{ActionKeys, "od"},
		{ActionReveal, "od"}, {ActionSecrets, "od"}, {ActionBranding, "o"},
		{ActionMembers, "o"}, {ActionAccount, "o"}, {ActionRestore, "o"},
		{"operate", ""}, {"invited", ""}, {"", ""},
	} {
		for _, r := range Roles() {
			if got, want := r.May(c.action), strings.Contains(c.who, string(r[:1])); got != want {
				t.Errorf("%s may %q: %t", r, c.action, got)
			}
		}
		if Role("").May(c.action) || Role("root").May(c.action) {
			t.Errorf("a role that is none may %q", c.action)
		}
	}
	if _, err := ParseRole("Owner"); err == nil ||
		!strings.Contains(err.Error(), "owner, developer or viewer") {
		t.Errorf("a role that is none: %v", err)
	}
}
