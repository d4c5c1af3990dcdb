package embedded_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
)

// With SyncInterval, a power cut takes back the last schedules, and not the acknowledgements of the
// deliveries that wait in them, since the witness is synced. These deliveries are given to dispatchers again.
func TestPowerCutLosesNoWaitingDelivery(t *testing.T) {
	natstest.NeedsEmbedded(t, "what its files hold")
	t.Parallel()
	dir, cut := filepath.Join(t.TempDir(), "store"), filepath.Join(t.TempDir(), "cut")
	conn, stop, err := tryStoreAs(t, dir, embedded.SyncInterval)
	if err != nil {
		t.Fatal(err)
	}
	schedule := func(session string) {
		t.Helper()
		_, err := conn.JS.PublishMsg(t.Context(), natsconf.ScheduleMsg("schedule."+session, "retry."+session,
			time.Now().Add(time.Hour), nil))
		if err != nil {
			t.Fatal(err)
		}
	}
	block := filepath.Join("nats", "jetstream", "$G", "streams", topology.StreamRetries, "msgs", "1.blk")
	schedule("other")
	synced := must(os.Stat(filepath.Join(dir, block))).Size() // what the disk keeps
	if _, err := conn.JS.Publish(t.Context(), "completion.waits", nil); err != nil {
		t.Fatal(err)
	}
	schedule("waits")
	m := must(must(conn.JS.Consumer(t.Context(), topology.StreamCompletions, topology.ConsumerDispatcher)).
		Next(jetstream.FetchMaxWait(natstest.TestTimeout)))
	if err := m.DoubleAck(t.Context()); err != nil {
		t.Fatal(err)
	}
	natstest.Await(t, "the witness knows all of it", func() bool {
		return embedded.WitnessHas(dir, lastOf(t, conn)) && embedded.WitnessFloor(dir,
			topology.StreamCompletions, topology.ConsumerDispatcher) == 1
	})
	copyTree(t, dir, cut)
	stop()
	if err := os.Truncate(filepath.Join(cut, block), synced); err != nil {
		t.Fatal(err)
	}

	conn, stop, err = tryStoreAs(t, cut, embedded.SyncInterval)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	state, err := conn.ConsumerState(t.Context(), topology.StreamCompletions, topology.ConsumerDispatcher)
	if err != nil || state.Waiting != 1 {
		t.Errorf("%d completions wait, %v; schedules: %q", state.Waiting, err,
			contents(t, conn, topology.StreamRetries))
	}
}
