package once

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
)

// written is the answer that a caller got for a message that no other caller writes.
type written struct {
	subject, nonce string
	err            error
	took           time.Duration
}

// store writes the message, once more if it was written before.
func (w written) store(ctx context.Context, c *natsconf.Conn, writer *natsconf.Writer) error {
	m := &nats.Msg{Subject: w.subject, Data: make([]byte, 512), Header: as(w.nonce)}
	_, err := Store(ctx, c, topology.StreamCompletions, m, ByWriter(writer))
	return err
}

// The leader changes repeatedly, one is killed, and then so many servers that there can be no leader, while
// many write facts in batches: every answer is true, and a repeat of an uncertain write stores it once.
func TestWritesAcrossLeaderChanges(t *testing.T) {
	t.Parallel()
	const callers = 96
	trio := natstest.StartTrio(t)
	conn := trio.Connect(t)
	natstest.Ensure(t, conn)
	writing := trio.Connect(t)
	writer := natstest.Writer(t, writing, topology.StreamCompletions)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	all := make([][]written, callers)
	var failed atomic.Int64
	var crowd sync.WaitGroup
	for c := range callers {
		crowd.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				w := written{subject: fmt.Sprintf("completion.c%d_%d", c, n), nonce: rand.Text()}
				begun := time.Now()
				w.err = w.store(t.Context(), writing, writer)
				w.took = time.Since(begun)
				all[c] = append(all[c], w)
				if w.err != nil {
					failed.Add(1)
					<-time.After(50 * time.Millisecond) // no leader: as a caller that tries again later
				}
			}
		})
	}
	for range 4 {
		natstest.StepDown(t, conn, topology.StreamCompletions)
	}
	leader := natstest.Leader(t, conn, topology.StreamCompletions)
	trio.Kill(leader)
	natstest.Leader(t, conn, topology.StreamCompletions)
	trio.Start(t, leader)
	natstest.StepDown(t, conn, topology.StreamCompletions)
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
	natstest.Leader(t, conn, topology.StreamCompletions)
	stop()
	answered := make(chan struct{})
	go func() { defer close(answered); crowd.Wait() }()
	natstest.Receive(t, "every write is answered", answered)

	held := noncesOf(t, conn)
	ends, slowest := map[string]int{}, time.Duration(0)
	for _, some := range all {
		for _, w := range some {
			ends[resultOf(w.err)]++
			slowest = max(slowest, w.took)
			w.judge(t, held, func(ctx context.Context) error { return w.store(ctx, writing, writer) })
		}
	}
	t.Logf("figures: %v; the slowest answer took %.1f s", ends, slowest.Seconds())
	if ends["stored"] == 0 || len(ends) == 1 || !batched(t, writing) {
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

// judge compares the caller's answers with what is stored, and repeats the writes of unknown result.
func (w written) judge(t *testing.T, held map[string]string, again func(context.Context) error) {
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
		if err := natsconf.AtBoot(t.Context(), again, func(err error) bool {
			return errors.Is(err, ErrTaken)
		}); err != nil {
			t.Errorf("repeat of %s: %v", w.subject, err)
		}
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
	case errors.Is(err, ErrTaken):
		return "taken"
	default:
		return "other"
	}
}

// noncesOf reads the writer of each fact, once the servers can be read from.
func noncesOf(t *testing.T, conn *natsconf.Conn) (held map[string]string) {
	t.Helper()
	natstest.Await(t, "the facts can be read", func() bool {
		held = map[string]string{}
		_, last, err := conn.Bounds(t.Context(), topology.StreamCompletions)
		if err == nil {
			err = conn.Pages(t.Context(), topology.StreamCompletions, "completion.*", 1, last,
				func(msgs []jetstream.Msg) error {
					for _, m := range msgs {
						if held[m.Subject()] != "" {
							t.Errorf("%s is there twice", m.Subject())
						}
						held[m.Subject()] = m.Headers().Get(NonceHeader)
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

// batched reports whether a writer of the connection has published a batch of several messages.
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
			single := h.GetBucket()[0].GetCumulativeCount()
			return single < h.GetSampleCount()
		}
	}
	return false
}
