package move

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/store"
	"verifyd/natsconf"
	"verifyd/natsconf/crashpoint"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
)

// published is the answer that a writer got for its message.
type published struct {
	subject string
	err     error
	at      time.Time // when it arrived
}

// A store on three servers is moved while its service keeps writing, and its leaders change repeatedly while
// its streams are being sealed: what was acknowledged is in the new store, what was refused is not, and
// nothing is acknowledged that the move has not copied. It is not parallel: it hooks the process.
func TestMoveWhileTheLeadersChange(t *testing.T) {
	trio := natstest.StartTrio(t)
	var unrest sync.WaitGroup
	var changes int64
	begin := func() {}
	crashpoint.Hook(func(point string) {
		if point == crashpoint.MoveLeaving { // the seal is next
			begin()
		}
	})
	t.Cleanup(func() { crashpoint.Hook(nil) })
	key := secretbox.NewKey()
	open := func(c config.Store, why store.Purpose) *store.Store {
		c.Key = &key
		st := must[*store.Store](t)(store.Open(t.Context(), c, zerolog.Nop(), why))
		t.Cleanup(st.Close)
		return st
	}
	m := &Move{
		From: open(config.Store{NATSURL: trio.URL(),
			Topology: topology.Options{Replicas: natstest.Replicas}}, store.ToServe),
		To: open(config.Store{DataDir: t.TempDir(), Sync: embedded.SyncAlways, StoreBytes: 256 << 20,
			Topology: topology.Options{Replicas: 1, Embedded: true}}, store.ToFill),
		Assets: store.Assets(), Running: true,
	}
	if err := m.Pair(t.Context(), "the old store"); err != nil {
		t.Fatal(err)
	}
	records := topology.BucketStream(topology.BucketSessions)
	stopWriting := writeOn(t, trio, map[string]string{
		topology.StreamCompletions: "resend.%s.1",
		records:                    topology.BucketSubject(topology.BucketSessions, "redeemed.%s"),
	})
	begin = sync.OnceFunc(func() {
		const enough = 8
		count, stop := trio.Unrest(t, 50*time.Millisecond, topology.StreamCompletions, records)
		natstest.Await(t, "a leader steps down", func() bool { return count() > 0 })
		unrest.Go(func() {
			for late := time.Now().Add(natstest.TestTimeout); count() < enough && time.Now().Before(late); {
				<-time.After(10 * time.Millisecond)
			}
			stop()
			changes = count()
		})
	})
	var moved time.Time
	tries := 1
	for late := time.Now().Add(natstest.TestTimeout); ; tries++ { // as who moves it would
		_, err := m.Finish(t.Context(), "the new store")
		if moved = time.Now(); err == nil {
			break
		}
		if moved.After(late) {
			t.Fatal(err)
		}
		t.Logf("try %d: %v", tries, err)
		<-time.After(200 * time.Millisecond)
	}
	unrest.Wait()
	all := stopWriting()
	there := map[string]bool{}
	for _, stream := range []string{topology.StreamCompletions, records} {
		msgs, err := m.To.Conn.Newest(t.Context(), stream, ">")
		if err != nil {
			t.Fatal(err)
		}
		for _, msg := range msgs {
			there[msg.Subject()] = true
		}
	}
	acknowledged, refused := 0, 0
	for _, p := range all {
		switch {
		case p.err == nil && !there[p.subject]:
			t.Errorf("%s was acknowledged %s before the move's end and is not in the new store", p.subject,
				moved.Sub(p.at))
		case errors.Is(p.err, natsconf.ErrUnavailable) && there[p.subject]:
			t.Errorf("%s was not stored, and is in the new store: %v", p.subject, p.err)
		case p.err == nil:
			acknowledged++
		default:
			refused++
		}
	}
	t.Logf("%d tries, %d leader changes; %d messages acknowledged, %d not", tries, changes, acknowledged,
		refused)
	if acknowledged == 0 || refused == 0 || changes == 0 {
		t.Error("this test is about nothing")
	}
}

// writeOn makes the service's writers store messages, each on its own subject, until they are stopped, and
// returns their answers.
func writeOn(t *testing.T, trio *natstest.Trio, subjects map[string]string) (stop func() []published) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var mu sync.Mutex
	var all []published
	var crowd sync.WaitGroup
	for stream, subject := range subjects {
		w := natstest.Writer(t, trio.Connect(t), stream)
		for c := range 8 {
			crowd.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					p := published{subject: fmt.Sprintf(subject, fmt.Sprintf("c%d_%d", c, n))}
					_, p.err = w.Publish(context.Background(), &nats.Msg{
						Subject: p.subject, Data: make([]byte, 256), Header: nats.Header{
							jetstream.ExpectedLastSubjSeqHeader: {"0"},
						},
					})
					p.at = time.Now()
					mu.Lock()
					all = append(all, p)
					mu.Unlock()
					<-time.After(5 * time.Millisecond)
				}
			})
		}
	}
	stop = sync.OnceValue(func() []published { cancel(); crowd.Wait(); return all })
	t.Cleanup(func() { stop() })
	return stop
}
