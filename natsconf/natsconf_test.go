package natsconf_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"verifyd/natsconf"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/natstest/virtual"
	"verifyd/natsconf/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(natstest.Tests(m)) }

// The server does not answer, as it does after a failed disk: each publish ends as uncertain, and none waits
// for another.
func TestUnansweredPublishesEndOneByOne(t *testing.T) {
	t.Parallel()
	virtual.Bubble(t, unansweredPublishesEndOneByOne)
}

func unansweredPublishesEndOneByOne(t *testing.T) {
	conn := virtual.NewBroker(t).Connect(t, nil)
	// A subscriber that is no stream gets the message and never answers.
	silent, err := conn.NC.SubscribeSync("session.*.*")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Unsubscribe() }()
	w := natsconf.NewWriter(conn, topology.StreamEvents)
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			_, err := w.Publish(t.Context(), &nats.Msg{Subject: fmt.Sprintf("session.x.%d", i)})
			if !errors.Is(err, natsconf.ErrUncertain) {
				t.Errorf("err = %v, want ErrUncertain", err)
			}
		})
	}
	synctest.Wait() // all are offered
	began := time.Now()
	natstest.Serve(t, w)
	wg.Wait()
	if took := time.Since(began); took >= 10*time.Second { // each has five, of virtual time
		t.Errorf("three that are not answered took %s", took)
	}
}

// A restarted server keeps its port and takes back the connections it had, the in-process ones included.
func TestConnectionsComeBackAfterTheServerRestarts(t *testing.T) {
	t.Parallel()
	e, conn, stop := natstest.StartServer(t, embedded.Options{DataDir: t.TempDir()})
	w := natstest.Writer(t, conn, topology.StreamCompletions)
	if _, err := w.Publish(t.Context(), &nats.Msg{Subject: "completion.a", Data: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	back := conn.Back()
	stop()
	if _, err := w.Publish(t.Context(), &nats.Msg{Subject: "completion.b"}); !errors.Is(err,
		natsconf.ErrUnavailable) && !errors.Is(err, natsconf.ErrUncertain) {
		t.Errorf("publish without a server: %v", err)
	}
	natstest.Serve(t, e)
	natstest.Receive(t, "the connection is back", back)
	if _, err := w.Publish(t.Context(),
		&nats.Msg{Subject: "completion.a", Data: []byte("2")}); !errors.Is(err, natsconf.ErrConflict) {
		t.Errorf("after the restart: %v, want the first message's conflict", err)
	}
	m, err := conn.Last(t.Context(), topology.StreamCompletions, "completion.a")
	if err != nil || string(m.Data) != "1" {
		t.Errorf("last = %v, %v", m, err)
	}
}

func TestLastReturnsErrNotFound(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	if _, err := conn.Last(t.Context(), topology.StreamCompletions, "completion.nobody"); !errors.Is(err,
		natsconf.ErrNotFound) {
		t.Errorf("err = %v, want ErrNotFound", err)
	}
}

// Many callers race for few subjects: the batches that carry a conflict fall back to single publishes, each
// subject has one winner, every loser gets an error, and what was acknowledged is what is stored.
func TestWriterReturnsEachCallerItsOwnResult(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	w := natstest.Writer(t, conn, topology.StreamCompletions)
	const subjects, racers = 50, 12
	var wg sync.WaitGroup
	won := make([][racers]bool, subjects)
	for s := range subjects {
		for r := range racers {
			wg.Go(func() {
				msg := &nats.Msg{Subject: fmt.Sprintf("completion.s%d", s), Data: fmt.Appendf(nil, "%d", r)}
				_, err := w.Publish(t.Context(), msg)
				switch {
				case err == nil:
					won[s][r] = true
				case !errors.Is(err, natsconf.ErrConflict):
					t.Errorf("subject %d racer %d: %v, want ErrConflict", s, r, err)
				}
			})
		}
	}
	wg.Wait()
	for s := range subjects {
		m, err := conn.Last(t.Context(), topology.StreamCompletions, fmt.Sprintf("completion.s%d", s))
		if err != nil {
			t.Fatal(err)
		}
		for r := range racers {
			if stored := string(m.Data) == fmt.Sprint(r); stored != won[s][r] {
				t.Errorf("subject %d racer %d: stored %t, told %t", s, r, stored, won[s][r])
			}
		}
	}
}

func TestWriterBatchesAreAcknowledgedAndStored(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	w := natsconf.NewWriter(conn, topology.StreamCompletions) // not yet served: all messages gather
	const n = 300
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if _, err := w.Publish(t.Context(), &nats.Msg{
				Subject: fmt.Sprintf("completion.b%d", i),
			}); err != nil {
				t.Error(err)
			}
		})
	}
	natstest.Serve(t, w)
	wg.Wait()
	s, err := conn.JS.Stream(t.Context(), topology.StreamCompletions)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.CachedInfo().State.Msgs; got != n {
		t.Errorf("%d messages stored, %d acknowledged", got, n)
	}
}

func TestCounterAcknowledgesTheNewTotal(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	w := natstest.Writer(t, conn, topology.StreamUsage)
	seen := make([]bool, 101)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			ack, err := w.Publish(t.Context(), &nats.Msg{
				Subject: "usage.a.202601", Header: nats.Header{"Nats-Incr": {"+1"}},
			})
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if ack.Total < 1 || ack.Total > 100 || seen[ack.Total] {
				t.Errorf("total %d is out of range or was given twice", ack.Total)
				return
			}
			seen[ack.Total] = true
		})
	}
	wg.Wait()
}

func TestPublishEndsWithItsContext(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	w := natsconf.NewWriter(conn, topology.StreamCompletions) // nobody serves it
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Publish(ctx, &nats.Msg{Subject: "completion.x"}); !errors.Is(err, natsconf.ErrUncertain) {
		t.Errorf("err = %v, want ErrUncertain", err)
	}
}

func TestFullStoreIsReported(t *testing.T) {
	t.Parallel()
	_, conn, _ := natstest.StartServer(t, embedded.Options{DataDir: t.TempDir(), StoreBytes: 64 << 10})
	w := natstest.Writer(t, conn, topology.StreamCompletions)
	var err error
	for i := range 1000 {
		_, err = w.Publish(t.Context(), &nats.Msg{
			Subject: fmt.Sprintf("completion.%d", i), Data: make([]byte, 1024),
		})
		if err != nil {
			break
		}
	}
	if !errors.Is(err, natsconf.ErrStoreFull) {
		t.Errorf("err = %v, want ErrStoreFull", err)
	}
}
