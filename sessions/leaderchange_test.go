package sessions

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
)

// written is what a caller was told of a message that nobody else writes.
type written struct {
	write

	nonce string
	err   error
	took  time.Duration
}

// The leader changes again and again, one is killed, and then so many servers that nobody can lead, while
// many write facts in batches: what a caller was told is true, and a repeat of what nobody knew stores it
// once.
func TestWritesAcrossLeaderChanges(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped under -short: three servers, one of which is killed")
	}
	t.Parallel()
	const callers = 96
	trio := natstest.StartTrio(t)
	conn := trio.Connect(t)
	natstest.Ensure(t, conn)
	writing := trio.Connect(t)
	writer := natstest.Writer(t, writing, natsconf.StreamCompletions)
	st := NewStore(Config{Conn: writing, Completions: writer, Key: secretbox.NewKey()})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	all := make([][]written, callers)
	var failed atomic.Int64
	var crowd sync.WaitGroup
	for c := range callers {
		crowd.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				w := written{nonce: rand.Text(), write: write{
					writer: writer, stream: natsconf.StreamCompletions,
					subject: fmt.Sprintf("completion.c%d_%d", c, n), data: make([]byte, 512),
				}}
				begun := time.Now()
				_, w.err = st.onceAs(t.Context(), w.write, w.nonce)
				w.took = time.Since(begun)
				all[c] = append(all[c], w)
				if w.err != nil {
					failed.Add(1)
					<-time.After(50 * time.Millisecond) // nobody leads: as a caller that tries again later
				}
			}
		})
	}
	for range 4 {
		natstest.StepDown(t, conn, natsconf.StreamCompletions)
	}
	leader := natstest.Leader(t, conn, natsconf.StreamCompletions)
	trio.Kill(leader)
	natstest.Leader(t, conn, natsconf.StreamCompletions)
	trio.Start(t, leader)
	natstest.StepDown(t, conn, natsconf.StreamCompletions)
	before := failed.Load()
	for _, name := range trio.Names()[1:] {
		trio.Kill(name)
	}
	natstest.Await(t, "somebody is told that a write has failed", func() bool {
		return failed.Load() > before
	})
	for _, name := range trio.Names()[1:] {
		trio.Start(t, name)
	}
	natstest.Leader(t, conn, natsconf.StreamCompletions)
	stop()
	crowd.Wait()

	held := noncesOf(t, conn)
	fates := map[string]int{}
	for _, some := range all {
		for _, w := range some {
			fates[resultOf(w.err)]++
			w.judge(t, st, held)
		}
	}
	t.Logf("%v", fates)
	if fates["stored"] == 0 || len(fates) == 1 || !batched(t, writing) {
		t.Error("this test is about nothing: nothing failed, or nothing was stored, or no batch was made")
	}
	after := noncesOf(t, conn)
	for _, some := range all {
		for _, w := range some {
			if resultOf(w.err) == "unknown" && after[w.subject] != w.nonce {
				t.Errorf("%s is not stored after the repeat", w.subject)
			}
		}
	}
}

// judge compares what the caller was told with what is held, and repeats what nobody knew.
func (w written) judge(t *testing.T, st *Store, held map[string]string) {
	t.Helper()
	nonce, there := held[w.subject]
	switch result := resultOf(w.err); {
	case result == "taken", result == "other":
		t.Errorf("%s, which nobody else writes: %v", w.subject, w.err)
	case result == "stored" && nonce != w.nonce:
		t.Errorf("%s was acknowledged and is not there", w.subject)
	case result == "not stored" && there:
		t.Errorf("%s is there: %v", w.subject, w.err)
	case there && nonce != w.nonce:
		t.Errorf("%s is somebody else's", w.subject)
	case result == "unknown":
		again := func(ctx context.Context) error {
			_, err := st.onceAs(ctx, w.write, w.nonce)
			return err
		}
		if err := natsconf.AtBoot(t.Context(), again, func(err error) bool {
			return errors.Is(err, errTaken)
		}); err != nil {
			t.Errorf("repeat of %s: %v", w.subject, err)
		}
	}
	if w.took > onceTries*15*time.Second { // a try, its answer's time-out and the look at the leader
		t.Errorf("%s took %s", w.subject, w.took)
	}
}

func resultOf(err error) string {
	switch {
	case err == nil:
		return "stored"
	case errors.Is(err, natsconf.ErrUncertain):
		return "unknown"
	case errors.Is(err, natsconf.ErrUnavailable):
		return "not stored"
	case errors.Is(err, errTaken):
		return "taken"
	default:
		return "other"
	}
}

// noncesOf reads who wrote each fact, once the servers can be read from.
func noncesOf(t *testing.T, conn *natsconf.Conn) (held map[string]string) {
	t.Helper()
	natstest.Await(t, "the facts can be read", func() bool {
		held = map[string]string{}
		_, last, err := conn.Bounds(t.Context(), natsconf.StreamCompletions)
		if err == nil {
			err = conn.Pages(t.Context(), natsconf.StreamCompletions, "completion.*", 1, last,
				func(msgs []jetstream.Msg) error {
					for _, m := range msgs {
						if held[m.Subject()] != "" {
							t.Errorf("%s is there twice", m.Subject())
						}
						held[m.Subject()] = m.Headers().Get(nonceHeader)
					}
					return nil
				})
		}
		if err != nil && !errors.Is(err, natsconf.ErrUnavailable) {
			t.Fatal(err)
		}
		return err == nil
	})
	return held
}

// batched reports whether a writer of the connection has made a batch of several messages.
func batched(t *testing.T, conn *natsconf.Conn) bool {
	t.Helper()
	registry := prometheus.NewRegistry()
	conn.Measure(registry)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "verifyd_writer_batch_messages" {
			h := f.GetMetric()[0].GetHistogram()
			return h.GetSampleSum() > 2*float64(h.GetSampleCount())
		}
	}
	return false
}

// What is tried later comes at its time, neither early nor never, while the leader of the schedules changes
// again and again, and when it is killed and the instants fall into the time without one.
func TestSchedulesAcrossLeaderChanges(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped under -short: three servers, one of which is killed")
	}
	t.Parallel()
	const many = 200
	trio := natstest.StartTrio(t)
	conn := trio.Connect(t)
	natstest.Ensure(t, conn)
	st := NewStore(Config{
		Conn: conn, Key: secretbox.NewKey(),
		Retries: natstest.Writer(t, trio.Connect(t), natsconf.StreamRetries),
	})
	begun := time.Now()
	due := map[ID]time.Time{}
	for i := range many {
		r := Retry{
			Session: ID(strings.Repeat("a", 29) +
				string([]byte{'a' + byte(i/100), 'a' + byte(i/10%10), 'a' + byte(i%10)})), Tries: 1,
			Since: begun.UTC(), At: begun.Add(time.Duration(2000+i*50) * time.Millisecond),
		}
		due[r.Session] = r.At
		if err := st.Schedule(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	came := gatherDue(t, trio.Connect(t), st)
	for time.Since(begun) < 5*time.Second { // the first third comes meanwhile
		natstest.StepDown(t, conn, natsconf.StreamRetries)
	}
	leader := natstest.Leader(t, conn, natsconf.StreamRetries)
	killed := time.Now()
	trio.Kill(leader)
	natstest.Leader(t, conn, natsconf.StreamRetries)
	elected := time.Now()
	trio.Start(t, leader)
	times, none := map[ID]int{}, 0
	late := time.After(natstest.TestTimeout)
	for len(times) < many {
		select {
		case c := <-came:
			times[c.id]++
			if at := due[c.id]; c.stored.Before(at) {
				t.Errorf("the retry of %s came %s early", c.id, at.Sub(c.stored))
			} else if at.After(killed) && at.Before(elected) {
				none++
			}
		case <-late:
			t.Fatalf("%d of %d retries have not come", many-len(times), many)
		}
	}
	// The server takes a schedule away after what it has sent is stored.
	natstest.Await(t, "an empty backlog after all have come", func() bool {
		b, err := st.Backlog(t.Context())
		return err == nil && b.Scheduled == 0
	})
	twice := 0
	for _, n := range times {
		twice += n - 1
	}
	t.Logf("%d fell into the %s without a leader, %d came again", none, elected.Sub(killed).
		Round(time.Millisecond), twice)
	if none == 0 {
		t.Error("no retry was due while there was no leader: this test is about nothing")
	}
}

// arrival is a retry that has come due.
type arrival struct {
	id     ID
	stored time.Time // when the server put it where dispatchers take it
}

// gatherDue takes what comes due, as a dispatcher does, until the test ends.
func gatherDue(t *testing.T, conn *natsconf.Conn, st *Store) <-chan arrival {
	t.Helper()
	consumer, err := conn.JS.Consumer(t.Context(), natsconf.StreamRetries, natsconf.ConsumerRetries)
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
