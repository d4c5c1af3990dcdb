package embedded_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
)

// losing is a store with SyncInterval whose disk may lose the end of streams.
type losing struct {
	t    *testing.T
	dir  string
	conn *natsconf.Conn
	stop func()
}

// newLosing opens a store whose writes are on the disk within some time; zero: as in the service.
func newLosing(t *testing.T, within time.Duration) *losing {
	t.Helper()
	natstest.NeedsEmbedded(t, "what its files hold")
	l := &losing{t: t, dir: filepath.Join(t.TempDir(), "store")}
	l.open(within)
	return l
}

func (l *losing) open(within time.Duration) {
	l.t.Helper()
	var err error
	l.conn, l.stop, err = tryStoreAs(l.t, l.dir, embedded.SyncInterval,
		func(e *embedded.Server) { e.SettleWithin(within) })
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *losing) block(dir, stream string) string {
	return filepath.Join(embedded.StreamFolder(dir, stream), "msgs", "1.blk")
}

// size returns how much of a stream there is.
func (l *losing) size(stream string) int64 {
	l.t.Helper()
	return must(os.Stat(l.block(l.dir, stream))).Size()
}

func (l *losing) publish(subject string) {
	l.t.Helper()
	if _, err := l.conn.JS.Publish(l.t.Context(), subject, nil); err != nil {
		l.t.Fatal(err)
	}
}

func (l *losing) schedule(session string) {
	l.t.Helper()
	_, err := l.conn.JS.PublishMsg(l.t.Context(), natsconf.ScheduleMsg("schedule."+session,
		"retry."+session, time.Now().Add(time.Hour), nil))
	if err != nil {
		l.t.Fatal(err)
	}
}

// take acknowledges the next completion, which must come.
func (l *losing) take() {
	l.t.Helper()
	consumer := must(l.conn.JS.Consumer(l.t.Context(), topology.StreamCompletions,
		topology.ConsumerDispatcher))
	m := must(consumer.Next(jetstream.FetchMaxWait(natstest.TestTimeout)))
	if err := m.DoubleAck(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
}

// cut ends the store by a power cut, after which the disk has only so much of streams. It starts it again,
// and reports how many completions wait.
func (l *losing) cut(taken uint64, kept map[string]int64) (waiting uint64, err error) {
	l.t.Helper()
	natstest.Await(l.t, "the witness knows all of it", func() bool {
		return embedded.WitnessHas(l.dir, lastOf(l.t, l.conn)) && embedded.WitnessFloor(l.dir,
			topology.StreamCompletions, topology.ConsumerDispatcher) == taken
	})
	left := filepath.Join(l.t.TempDir(), "cut")
	copyTree(l.t, l.dir, left)
	l.stop()
	for stream, size := range kept {
		if err := os.Truncate(l.block(left, stream), size); err != nil {
			l.t.Fatal(err)
		}
	}
	l.dir = left
	if l.conn, l.stop, err = tryStoreAs(l.t, left, embedded.SyncInterval); err != nil {
		return 0, err
	}
	l.t.Cleanup(l.stop)
	state, err := l.conn.ConsumerState(l.t.Context(), topology.StreamCompletions, topology.ConsumerDispatcher)
	return state.Waiting, err
}

// With SyncInterval, a power cut takes back the last schedules, and not the acknowledgements of the
// deliveries that wait in them, since the witness is synced. These deliveries are given to dispatchers again.
func TestPowerCutLosesNoWaitingDelivery(t *testing.T) {
	t.Parallel()
	l := newLosing(t, 0)
	l.schedule("other")
	synced := l.size(topology.StreamRetries) // what the disk keeps
	l.publish("completion.waits")
	l.schedule("waits")
	l.take()
	waiting, err := l.cut(1, map[string]int64{topology.StreamRetries: synced})
	if err != nil || waiting != 1 {
		t.Errorf("%d completions wait, %v; schedules: %q", waiting, err,
			contents(t, l.conn, topology.StreamRetries))
	}
}

// If facts are lost too, what was acknowledged may have been sent: it is not given again. What is stored
// after the cut takes the sequences of what was lost, and is given.
func TestPowerCutThatLosesFactsRepeatsNothing(t *testing.T) {
	t.Parallel()
	l := newLosing(t, 0)
	l.publish("completion.first")
	l.schedule("first")
	l.take()
	kept := map[string]int64{topology.StreamCompletions: l.size(topology.StreamCompletions),
		topology.StreamRetries: l.size(topology.StreamRetries)}
	l.publish("completion.second")
	l.schedule("second")
	l.take()
	if waiting, err := l.cut(2, kept); err != nil || waiting != 0 {
		t.Fatalf("%d completions wait, %v", waiting, err)
	}
	l.publish("completion.third")
	l.take()
}

// With SyncInterval a power cut may take back what was written last, however long the store was quiet before
// that. What was on the disk by then is missed.
func TestPowerCutAfterAQuietTime(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		lost    int
		damaged bool
	}{"the last write": {1, false}, "what is settled": {2, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLosing(t, 500*time.Millisecond)
			sizes := []int64{}
			for _, subject := range []string{"completion.a", "completion.b"} {
				l.publish(subject)
				sizes = append(sizes, l.size(topology.StreamCompletions))
			}
			natstest.Await(t, "what was stored is settled", func() bool {
				return embedded.WitnessSettled(l.dir, topology.StreamCompletions) == 2
			})
			l.stop()
			l.open(0) // nothing more is settled for minutes
			l.publish("completion.c")
			_, err := l.cut(0, map[string]int64{topology.StreamCompletions: sizes[2-test.lost]})
			if _, damaged := errors.AsType[*embedded.DamageError](err); damaged != test.damaged ||
				err != nil && !damaged {
				t.Errorf("the start says %v", err)
			}
		})
	}
}

// A counter that a power cut took back is no damage.
func TestPowerCutMayTakeCounters(t *testing.T) {
	t.Parallel()
	l := newLosing(t, 0)
	count := func(subject string) {
		t.Helper()
		m := nats.NewMsg(subject)
		m.Header.Set("Nats-Incr", "1")
		if _, err := l.conn.JS.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	count("usage.a.2026-11")
	kept := l.size(topology.StreamUsage)
	count("usage.b.2026-11")
	if _, err := l.cut(0, map[string]int64{topology.StreamUsage: kept}); err != nil {
		t.Error(err)
	}
}
