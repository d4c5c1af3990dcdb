package provision_test

import (
	"testing"

	"verifyd/natsconf/natstest"
	"verifyd/natsconf/provision"
	"verifyd/natsconf/topology"
)

// What only older builds need stays until it is to be removed, and is reported until then. What no server
// takes back is reported, and refuses no start.
func TestSettingsOfOlderBuilds(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	natstest.Ensure(t, conn)
	natstest.Outdate(t, conn)
	e := provision.Ensurer{
		Conn: conn, Topology: topology.New(natstest.Options(conn)), Update: true,
		Changed: func(asset, field, from, to string) {
			t.Errorf("%s: %s is changed from %s to %s", asset, field, from, to)
		},
	}
	if err := e.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	in, err := e.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[provision.DifferenceKind]int{}
	for _, d := range in.Differences {
		kinds[d.Kind]++
	}
	if kinds[provision.Outdated] != 12 || kinds[provision.Lasting] != 1 || len(kinds) != 2 {
		t.Errorf("differences: %v", in.Differences)
	}
	e.Finish, e.Changed = true, nil
	if err := e.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	if in, err = e.Inspect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(in.Differences) != 1 || in.Differences[0].Kind != provision.Lasting {
		t.Errorf("differences: %v", in.Differences)
	}
}
