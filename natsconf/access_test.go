package natsconf_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"verifyd/natsconf"
	"verifyd/natsconf/permission"
)

// Patterns cover and collide as the server's functions have it: all pairs of up to three tokens are compared.
func TestSubjectsAreTheServers(t *testing.T) {
	t.Parallel()
	tokens := []string{"a", "b", "*"}
	all, last := []string{}, []string{""}
	for range 3 {
		var longer []string
		for _, s := range last {
			for _, token := range tokens {
				longer = append(longer, strings.TrimPrefix(s+"."+token, "."))
			}
			all = append(all, strings.TrimPrefix(s+".>", "."))
		}
		all, last = append(all, longer...), longer
	}
	for _, one := range all {
		for _, other := range all {
			covered := natsconf.Covered(one, []string{other})
			if want := server.SubjectMatchesFilter(one, other); covered != want {
				t.Errorf("%s covers %s: %t, of the server: %t", other, one, covered, want)
			}
			collide := natsconf.Collide(one, other)
			if want := server.SubjectsCollide(one, other); collide != want {
				t.Errorf("%s and %s collide: %t, of the server: %t", one, other, collide, want)
			}
		}
	}
}

// A table of a newer build may keep a role off more consumers, by their names: this build starts under it.
// Any other denial of what the role needs is a lack, also of the consumer that is the role's own.
func TestDeniedConsumersAreNoLack(t *testing.T) {
	t.Parallel()
	lacking := func(role permission.Role, never ...string) []string {
		p := permission.Of(role, "NAME").Publish
		return natsconf.GrantsOf("NAME", p.Allow, slices.Concat(p.Deny, never)).Lacking(role)
	}
	const consumer = "$JS.API.CONSUMER."
	if l := lacking(permission.RoleEdge, consumer+"CREATE.AUDIT.newer", consumer+"CREATE.AUDIT.newer.>",
		consumer+"MSG.NEXT.AUDIT.newer", consumer+"DELETE.AUDIT.newer"); len(l) > 0 {
		t.Errorf("under a newer table an edge lacks %q", l)
	}
	for _, never := range []string{
		consumer + "CREATE.AUDIT.>", consumer + "CREATE.AUDIT.*", consumer + "CREATE.*.newer",
		consumer + "MSG.NEXT.AUDIT.*", consumer + "DELETE.>", consumer + "INFO.AUDIT.newer", "$KV.keys.a.b",
		"completion.a",
	} {
		if len(lacking(permission.RoleEdge, never)) == 0 {
			t.Errorf("an edge that may not publish %s lacks nothing", never)
		}
	}
	for _, never := range permission.Of(permission.RoleEdge, "NAME").Publish.Deny {
		if len(lacking(permission.RoleDispatcher, never)) == 0 {
			t.Errorf("a dispatcher that may not publish %s lacks nothing", never)
		}
	}
}
