package store

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
)

// Scheduled tries arrive on time, neither early nor never, while the leader of the schedules changes
// repeatedly, and when it is killed and their instants are in the time without one.
func TestSchedulesAcrossLeaderChanges(t *testing.T) {
	t.Parallel()
	const many = 200
	trio := natstest.StartTrio(t)
	conn := trio.Connect(t)
	natstest.Ensure(t, conn)
	st := New(Config{
		Conn: conn, Key: secretbox.NewKey(),
		Retries: natstest.Writer(t, trio.Connect(t), topology.StreamRetries),
	})
	due := map[sessions.ID]time.Time{}
	var mu sync.Mutex
	schedule := func(from, to int) { // from a second from now on, in order
		begun := time.Now()
		first := begun.Add(time.Second)
		var all sync.WaitGroup
		for i := from; i < to; i++ {
			all.Go(func() {
				r := facts.Retry{
					Session: sessions.ID(strings.Repeat("a", 29) +
						string([]byte{'a' + byte(i/100), 'a' + byte(i/10%10), 'a' + byte(i%10)})), Tries: 1,
					Since: begun.UTC(), At: first.Add(time.Duration(i-from) * 50 * time.Millisecond),
				}
				mu.Lock()
				due[r.Session] = r.At
				mu.Unlock()
				if err := st.Schedule(t.Context(), r); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	came := gatherDue(t, trio.Connect(t), st)
	times := map[sessions.ID]int{}
	take := func(c arrival) {
		times[c.id]++
		if at := due[c.id]; c.stored.Before(at) {
			t.Errorf("the retry of %s came %s early", c.id, at.Sub(c.stored))
		}
	}
	schedule(0, many/3)
	for begun := time.Now(); len(times) < many/3; {
		if time.Since(begun) > natstest.TestTimeout {
			t.Fatalf("%d of %d retries have not come", many/3-len(times), many/3)
		}
		natstest.StepDown(t, conn, topology.StreamRetries)
		for len(came) > 0 {
			take(<-came)
		}
	}
	schedule(many/3, many)
	leader := natstest.Leader(t, conn, topology.StreamRetries)
	killed := time.Now()
	trio.Kill(leader)
	natstest.Leader(t, conn, topology.StreamRetries)
	elected := time.Now()
	trio.Start(t, leader)
	late := time.After(natstest.TestTimeout)
	for len(times) < many {
		select {
		case c := <-came:
			take(c)
		case <-late:
			t.Fatalf("%d of %d retries have not come", many-len(times), many)
		}
	}
	none := 0
	for _, at := range due {
		if at.After(killed) && at.Before(elected) {
			none++
		}
	}
	// The server removes a schedule after its message is stored.
	natstest.Await(t, "an empty backlog after all have come", func() bool {
		b, err := st.Backlog(t.Context())
		return err == nil && b.Scheduled == 0
	})
	twice := 0
	for _, n := range times {
		twice += n - 1
	}
	t.Logf("figures: %d schedules, %d of them within %s without a leader; %d came twice", len(times), none,
		elected.Sub(killed).Round(time.Millisecond), twice)
	if none == 0 {
		t.Error("no retry was due while there was no leader: this test is about nothing")
	}
}

// arrival is a retry that has come due.
type arrival struct {
	id     sessions.ID
	stored time.Time // when the server stored it for dispatchers
}

// gatherDue takes due messages, as a dispatcher does, until the test ends.
func gatherDue(t *testing.T, conn *natsconf.Conn, st *Store) <-chan arrival {
	t.Helper()
	consumer, err := conn.JS.Consumer(t.Context(), topology.StreamRetries, topology.ConsumerRetries)
	if err != nil {
		t.Fatal(err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		t.Fatal(err)
	}
	came := make(chan arrival, 10_000)
	var taking sync.WaitGroup
	taking.Go(func() {
		for {
			m, err := messages.Next()
			switch {
			case errors.Is(err, jetstream.ErrMsgIteratorClosed):
				return
			case err != nil:
				continue // of a heartbeat that is missing while there is no leader
			}
			r, err := st.DecodeRetry(m.Subject(), m.Data())
			if err != nil {
				t.Error(err)
				return
			}
			meta, err := m.Metadata()
			if err != nil {
				t.Error(err)
				return
			}
			came <- arrival{r.Session, meta.Timestamp}
			_ = m.Ack()
		}
	})
	t.Cleanup(func() { messages.Stop(); taking.Wait() })
	return came
}
