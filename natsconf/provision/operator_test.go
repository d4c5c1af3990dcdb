package provision_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"verifyd/natsconf/natstest"
	"verifyd/natsconf/permission"
	"verifyd/natsconf/provision"
	"verifyd/natsconf/topology"
)

// A process whose credential may create nothing waits for the operator, and reports that; a command does not
// wait.
func TestTopologyIsTheOperators(t *testing.T) {
	t.Parallel()
	e := natstest.StartExternal(t)
	table := topology.New(topology.Options{})
	edge := provision.Ensurer{Conn: e.Connect(t, permission.RoleEdge), Topology: table}
	missing, ok := errors.AsType[*provision.MissingError](edge.EnsureAtBoot(t.Context()))
	if !ok || !strings.Contains(missing.Error(), "verifyd apply") {
		t.Fatalf("a command: %v", missing)
	}
	told := make(chan error, 10)
	edge.Update, edge.Waiting = true, []func(error){func(err error) { told <- err }}
	up := make(chan error, 1)
	go func() { up <- edge.EnsureAtBoot(t.Context()) }()
	natstest.Receive(t, "it tells that it waits", told)
	operator := provision.Ensurer{Conn: e.Connect(t, permission.RoleOperator), Topology: table, Update: true}
	if err := operator.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := natstest.Receive(t, "the start ends", up); err != nil {
		t.Fatal(err)
	}
	if len(told) > 0 {
		t.Error("waiting was told more than once")
	}
	// Another choice of how long results are kept is the operator's to apply, too.
	edge.Topology = topology.New(topology.Options{KeepResults: 5 * time.Hour})
	if err := edge.EnsureAtBoot(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := operator.Conn.JS.Stream(t.Context(), topology.StreamCompletions)
	if err != nil {
		t.Fatal(err)
	}
	if age := s.CachedInfo().Config.MaxAge; age != topology.DefaultKeepResults {
		t.Errorf("an edge changed how long results are kept to %s", age)
	}
}
