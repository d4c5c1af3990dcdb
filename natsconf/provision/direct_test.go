package provision_test

import (
	"errors"
	"testing"

	"verifyd/natsconf/natstest"
	"verifyd/natsconf/provision"
	"verifyd/natsconf/topology"
)

// Direct reads are on if a stream has one replica, stay off in the store of an older build, which would
// refuse them after a downgrade, and are refused if another replica than the leader may answer.
func TestDirectReads(t *testing.T) {
	t.Parallel()
	natstest.NeedsEmbedded(t, "on a cluster direct reads are off")
	conn := natstest.Start(t)
	s, err := conn.JS.Stream(t.Context(), topology.StreamCompletions)
	if err != nil {
		t.Fatal(err)
	}
	c := s.CachedInfo().Config
	if !c.AllowDirect {
		t.Error("a new store has no direct reads")
	}
	err = provision.Ensurer{Conn: conn, Topology: topology.New(topology.Options{Replicas: 1}),
		Update: true}.Ensure(t.Context())
	if drift, ok := errors.AsType[*provision.DriftError](err); !ok || drift.Field != "allow_direct" {
		t.Errorf("a store of servers of their own with direct reads: err = %v", err)
	}
	c.AllowDirect = false
	if _, err := conn.JS.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	err = provision.Ensurer{Conn: conn, Topology: topology.New(topology.Options{Embedded: true}),
		Update: true}.Ensure(t.Context())
	if s, err := conn.JS.Stream(t.Context(), topology.StreamCompletions); err != nil ||
		s.CachedInfo().Config.AllowDirect {
		t.Errorf("the store of an older build has direct reads now (%v)", err)
	}
	if err != nil {
		t.Errorf("the store of an older build: %v", err)
	}
}
