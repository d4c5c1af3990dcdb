package embedded_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf/embedded"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/provision"
	"verifyd/natsconf/topology"
)

// Of three servers one has a damaged file. It is identified, and when the stream's folder is removed there,
// the others fill it again: each of the three then holds everything, and can lead with it.
func TestDamagedServerIsRefilled(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("skipped under -short: it runs three servers of its own")
	}
	tr := natstest.StartTrio(t)
	conn := tr.Connect(t)
	natstest.Ensure(t, conn)
	for i := range 200 {
		m := &nats.Msg{
			Subject: fmt.Sprintf("claim.t%d.1", i), Data: []byte("{}"), Header: nats.Header{
				jetstream.ExpectedLastSubjSeqHeader: {"0"},
			},
		}
		if _, err := conn.JS.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	want := contents(t, conn, topology.StreamCompletions)
	current := func() bool {
		h := provision.Ensurer{Conn: conn,
			Topology: topology.New(natstest.Options(conn))}.Health(t.Context())
		return !slices.ContainsFunc(h.Streams, func(s provision.StreamHealth) bool {
			return s.Err != nil || s.Current != 3
		})
	}
	natstest.Await(t, "all copies are current", current)
	hurt := tr.Others(natstest.Leader(t, conn, topology.StreamCompletions))[0]
	tr.Kill(hurt)
	dir := filepath.Join(tr.Dir(), hurt)
	folder := filepath.Join(dir, "jetstream", "$G", "streams", topology.StreamCompletions)
	change(t, filepath.Join(folder, "msgs", "1.blk"), func(b []byte) []byte { b[len(b)/2] ^= 1; return b })

	err := embedded.InspectFiles(dir)
	damage, ok := errors.AsType[*embedded.DamageError](err)
	if !ok || len(damage.Damages) != 1 || damage.Damages[0].Stream != topology.StreamCompletions ||
		damage.Damages[0].Lost != 1 {
		t.Fatalf("the damaged server: %v", err)
	}
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	tr.Start(t, hurt)
	natstest.Await(t, "all copies are current again", current)
	for _, other := range tr.Others(hurt) { // so that the filled data is read
		tr.Kill(other)
		if err := embedded.InspectFiles(filepath.Join(tr.Dir(), other)); err != nil {
			t.Errorf("%s: %v", other, err)
		}
		tr.Start(t, other)
		natstest.Await(t, "all copies are current", current)
	}
	tr.Kill(hurt)
	if err := embedded.InspectFiles(dir); err != nil {
		t.Errorf("the server that was filled anew: %v", err)
	}
	tr.Start(t, hurt)
	natstest.Await(t, "all copies are current", current)
	for natstest.Leader(t, conn, topology.StreamCompletions) != hurt {
		natstest.StepDown(t, conn, topology.StreamCompletions)
	}
	if have := contents(t, conn, topology.StreamCompletions); !slices.Equal(have, want) {
		t.Errorf("%d messages of %d", len(have), len(want))
	}
}
