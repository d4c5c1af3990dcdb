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

	"verifyd/natsconf"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/provision"
	"verifyd/natsconf/topology"
)

// Of three servers one has a damaged file. It is identified, and when the stream's folder is removed there,
// the others fill it again: each of the three then holds everything, and can lead with it.
func TestDamagedServerIsRefilled(t *testing.T) {
	t.Parallel()
	tr, conn, want, current := filledTrio(t)
	hurt := tr.Others(natstest.Leader(t, conn, topology.StreamCompletions))[0]
	tr.Kill(hurt)
	dir := filepath.Join(tr.Dir(), hurt)
	folder := filepath.Join(dir, "jetstream", "$G", "streams", topology.StreamCompletions)
	change(t, filepath.Join(folder, "msgs", "1.blk"), func(b []byte) []byte { b[len(b)/2] ^= 1; return b })

	_, err := embedded.InspectFiles(dir)
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
		if _, err := embedded.InspectFiles(filepath.Join(tr.Dir(), other)); err != nil {
			t.Errorf("%s: %v", other, err)
		}
		tr.Start(t, other)
		natstest.Await(t, "all copies are current", current)
	}
	leadsWithAll(t, tr, conn, hurt, want, current)
}

// A server whose store is gone comes back under its name with an empty one, and the others fill it.
func TestLostServerIsFilledAnew(t *testing.T) {
	t.Parallel()
	tr, conn, want, current := filledTrio(t)
	lost := tr.Others(natstest.Leader(t, conn, topology.StreamCompletions))[0]
	tr.Kill(lost)
	if err := os.RemoveAll(filepath.Join(tr.Dir(), lost)); err != nil {
		t.Fatal(err)
	}
	tr.Start(t, lost)
	natstest.Await(t, "all copies are current again", current)
	leadsWithAll(t, tr, conn, lost, want, current)
}

// filledTrio runs three servers with the topology and some messages. It returns the messages, and a function
// that reports whether all copies of all streams are current.
func filledTrio(t *testing.T) (tr *natstest.Trio, conn *natsconf.Conn, want []string, current func() bool) {
	t.Helper()
	tr = natstest.StartTrio(t)
	conn = tr.Connect(t)
	natstest.Ensure(t, conn)
	for i := range 200 {
		natstest.Publish(t, conn, fmt.Sprintf("claim.t%d.1", i), []byte("{}"),
			nats.Header{jetstream.ExpectedLastSubjSeqHeader: {"0"}})
	}
	want = contents(t, conn, topology.StreamCompletions)
	current = func() bool {
		h := provision.Ensurer{Conn: conn,
			Topology: topology.New(natstest.Options(conn))}.Health(t.Context())
		return !slices.ContainsFunc(h.Streams, func(s provision.StreamHealth) bool {
			return s.Err != nil || s.Current != 3
		})
	}
	natstest.Await(t, "all copies are current", current)
	return tr, conn, want, current
}

// leadsWithAll checks the files of a server that was filled, and that it has everything when it leads.
func leadsWithAll(t *testing.T, tr *natstest.Trio, conn *natsconf.Conn, server string, want []string,
	current func() bool) {
	t.Helper()
	tr.Kill(server)
	if _, err := embedded.InspectFiles(filepath.Join(tr.Dir(), server)); err != nil {
		t.Errorf("the server that was filled anew: %v", err)
	}
	tr.Start(t, server)
	natstest.Await(t, "all copies are current", current)
	natstest.Lead(t, conn, topology.StreamCompletions, server)
	if have := contents(t, conn, topology.StreamCompletions); !slices.Equal(have, want) {
		t.Errorf("%d messages of %d", len(have), len(want))
	}
}
