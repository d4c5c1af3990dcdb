package natsconf_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"verifyd/natsconf"
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
