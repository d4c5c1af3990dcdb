package natsconf_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
	"verifyd/natsconf/wait"
)

// holdGate is a gate that, once armed, forwards one chunk from clients and holds the next one until it is
// released.
type holdGate struct {
	*natstest.Gate

	stage    atomic.Int32 // 0: not armed; then one more than the chunks that have come
	held     chan struct{}
	released chan struct{}
	release  func()
}

func newHoldGate(t *testing.T, to string) *holdGate {
	t.Helper()
	g := &holdGate{}
	g.Gate = natstest.NewGate(t, to, func() func(bool) bool {
		return func(toServer bool) bool {
			if toServer && g.stage.Load() > 0 && g.stage.Add(1) == 3 {
				close(g.held)
				<-g.released
			}
			return true
		}
	})
	return g
}

func (g *holdGate) arm(t *testing.T) {
	t.Helper()
	g.held, g.released = make(chan struct{}), make(chan struct{})
	g.release = sync.OnceFunc(func() {
		g.stage.Store(0)
		close(g.released)
	})
	t.Cleanup(g.release)
	g.stage.Store(1)
}

// The leader of a stream changes while the messages of an atomic batch are on their way to it: nothing is
// stored, the caller gets no more than is known, and the same batch is stored once it is repeated.
func TestBatchCutByALeaderChange(t *testing.T) {
	t.Parallel()
	trio := natstest.StartTrio(t)
	conn := trio.Connect(t)
	natstest.Ensure(t, conn)
	stream := topology.BucketStream(topology.BucketKeys)
	for what, change := range map[string]func(leader string) (after func()){
		"steps down": func(string) func() {
			natstest.StepDown(t, conn, stream)
			return func() {}
		},
		"is killed": func(leader string) func() {
			trio.Kill(leader)
			return func() { trio.Start(t, leader) }
		},
	} {
		t.Run(what, func(t *testing.T) {
			leader := natstest.Leader(t, conn, stream)
			third := trio.Others(leader)[0]
			g := newHoldGate(t, trio.Address(third))
			through := natstest.ConnectTo(t, "nats://"+g.Addr().String())
			batch := make([]*nats.Msg, 100)
			for i := range batch {
				batch[i] = &nats.Msg{
					Subject: topology.BucketSubject(topology.BucketKeys, fmt.Sprintf("%s.%d", what[:2], i)),
					Data:    make([]byte, 2048),
					Header:  nats.Header{jetstream.ExpectedLastSubjSeqHeader: {"0"}},
				}
			}
			g.arm(t)
			told := make(chan error, 1)
			go func() { told <- through.PublishBatch(t.Context(), stream, batch...) }()
			<-g.held // some of the messages are with the leader, the last one is not
			after := change(leader)
			if what == "steps down" { // what arrives at that server goes to the new leader from now on
				natstest.Publish(t, trio.Connect(t, third),
					topology.BucketSubject(topology.BucketKeys, "probe"), nil)
			}
			g.release()
			select {
			case err := <-told:
				if !open(err) || errors.Is(err, natsconf.ErrConflict) {
					t.Errorf("the caller was told %v, want that it is not stored, or not known to be, "+
						"and that nobody else was there", err)
				}
			case <-time.After(natstest.TestTimeout):
				t.Fatal("the caller hangs")
			}
			after()
			if n := countOf(t, conn, stream, batch); n != 0 {
				t.Errorf("%d messages of the batch are stored", n)
			}
			if err := natsconf.AtBoot(t.Context(), func(ctx context.Context) error {
				return through.PublishBatch(ctx, stream, batch...)
			},
				func(err error) bool { return !open(err) }); err != nil {
				t.Errorf("the repeat: %v", err)
			}
			if n := countOf(t, conn, stream, batch); n != len(batch) {
				t.Errorf("%d of %d messages are stored after the repeat", n, len(batch))
			}
		})
	}
}

// open reports whether a publish may be repeated: nothing is stored, or the answer was lost, as when the
// leader changes once more.
func open(err error) bool {
	return errors.Is(err, natsconf.ErrUnavailable) || errors.Is(err, natsconf.ErrUncertain)
}

// countOf returns how many of these messages the stream's leader holds, once there is one.
func countOf(t *testing.T, conn *natsconf.Conn, stream string, msgs []*nats.Msg) (n int) {
	t.Helper()
	for _, m := range msgs {
		err := natsconf.AtBoot(t.Context(), func(ctx context.Context) error {
			_, err := conn.Last(ctx, stream, m.Subject)
			return err
		}, func(err error) bool { return errors.Is(err, natsconf.ErrNotFound) })
		switch {
		case err == nil:
			n++
		case !errors.Is(err, natsconf.ErrNotFound):
			t.Fatal(err)
		}
	}
	return n
}

// A server that was down catches up with the others. Readings that it serves meanwhile return everything that
// was acknowledged, or an error.
func TestReadingWhileACopyIsBehind(t *testing.T) {
	t.Parallel()
	const many = 20_000
	trio := natstest.StartTrio(t)
	conn := trio.Connect(t)
	natstest.Ensure(t, conn)
	leader := natstest.Leader(t, conn, topology.StreamCompletions)
	away := trio.Others(leader)[0]
	reading := trio.Connect(t, leader)
	trio.Kill(away)
	w := natstest.Writer(t, reading, topology.StreamCompletions)
	var crowd sync.WaitGroup
	for c := range 250 {
		crowd.Go(func() {
			for n := range many / 250 {
				if _, err := w.Publish(t.Context(), &nats.Msg{
					Subject: fmt.Sprintf("resend.c%d.%d", c, n), Data: make([]byte, 256),
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	crowd.Wait()
	trio.Start(t, away)
	caughtUp := func() bool {
		s, err := conn.JS.Stream(t.Context(), topology.StreamCompletions)
		if err != nil || s.CachedInfo().Cluster == nil {
			return false
		}
		return slices.ContainsFunc(s.CachedInfo().Cluster.Replicas, func(p *jetstream.PeerInfo) bool {
			return p.Name == away && p.Current && !p.Offline && p.Lag == 0
		})
	}
	const after = 100 // readings once it has everything, which it may not have stored yet
	whole, refused, late := 0, 0, time.Now().Add(natstest.TestTimeout)
	for left := after; left > 0; {
		if time.Now().After(late) {
			t.Fatalf("%s is behind, or nothing is read: %d readings, %d refused", away, whole, refused)
		}
		if left < after || caughtUp() {
			left--
		}
		_, last, err := reading.Bounds(t.Context(), topology.StreamCompletions)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		if whole%2 == 0 {
			err = reading.Pages(t.Context(), topology.StreamCompletions, ">", last-2000, last,
				func(msgs []jetstream.Msg) error { n += len(msgs); return nil })
		} else {
			var msgs []jetstream.Msg
			msgs, err = reading.Range(t.Context(), topology.StreamCompletions, ">", last-2000, last)
			n = len(msgs)
		}
		switch {
		case errors.Is(err, natsconf.ErrUnavailable):
			refused++
		case err != nil:
			t.Fatal(err)
		case n != 2001:
			t.Fatalf("%d of the last 2001 messages were read, without an error", n)
		default:
			whole++
		}
		newest, err := reading.Newest(t.Context(), topology.StreamCompletions,
			fmt.Sprintf("resend.c%d.%d", whole%250, many/250-1))
		switch {
		case errors.Is(err, natsconf.ErrUnavailable):
			refused++
		case err != nil:
			t.Fatal(err)
		case len(newest) != 1:
			t.Fatal("a message that was acknowledged is not among the newest, without an error")
		}
	}
	t.Logf("%d readings were whole, %d refused", whole, refused)
}

// A server that leads a stream is cut off from the others, which elect another leader. From what the new one
// has acknowledged on, no client of the old one is told that it is not there: it waits, until the servers
// meet again. The old one answers at all only as long as it also leads the servers, or hears from who does:
// so each leads in turn until one does not have what the others have.
func TestNotFoundDuringAPartition(t *testing.T) {
	t.Parallel()
	trio := natstest.StartTrio(t)
	trio.LayLines(t)
	natstest.Ensure(t, trio.Connect(t))
	for round := range 9 {
		if old := trio.Names()[round%3]; cutOff(t, trio, old, round) {
			return
		}
	}
	t.Error("no server that was cut off answered any more: this test is about nothing")
}

// cutOff cuts the leader of a stream off, and reports whether it answered others that something is not there
// which its successor had acknowledged.
func cutOff(t *testing.T, trio *natstest.Trio, old string, round int) (stale bool) {
	t.Helper()
	stream := topology.BucketStream(topology.BucketSessions)
	here, there := trio.Connect(t, old), trio.Connect(t, trio.Others(old)...)
	subject := topology.BucketSubject(topology.BucketSessions, fmt.Sprint("made-meanwhile-", round))
	natstest.Lead(t, there, stream, old)
	asks, err := here.JS.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	trio.CutOff(old)
	defer trio.Heal()
	natstest.Await(t, "the others have another leader", func() bool {
		return natstest.Leader(t, there, stream) != old
	})
	natstest.Publish(t, there, subject, []byte("x"))
	ctx, cancel := wait.For(t.Context(), natstest.TestTimeout)
	defer cancel()
	waits := make(chan error, 1)
	go func() {
		_, err := here.Last(ctx, stream, subject)
		waits <- err
	}()
	for {
		_, err := asks.GetLastMsgForSubject(t.Context(), subject)
		if !errors.Is(err, jetstream.ErrMsgNotFound) {
			break
		}
		stale = true
		if _, err := here.Last(t.Context(), stream, subject); errors.Is(err, natsconf.ErrNotFound) {
			t.Fatal("on the side of the old leader:", err)
		}
	}
	trio.Heal()
	if err := natstest.Receive(t, "who waits is answered", waits); err != nil {
		t.Error("who waits:", err)
	}
	return stale
}
