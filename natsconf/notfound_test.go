package natsconf_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
	"verifyd/natsconf/wait"
)

// oldLeader answers for the stream ONE of a cluster, as a leader does that may have been cut off.
type oldLeader struct {
	silence atomic.Int64           // nanoseconds since the others have answered it
	asked   atomic.Int64           // how often it was asked for its state
	found   atomic.Pointer[string] // the answer to a read
	read    chan struct{}          // a read came
}

const (
	absent = `{"error":{"code":404,"err_code":10037,"description":"no message found"}}`
	there  = `{"message":{"subject":"one.1","seq":7,"data":"eA==","time":"2026-11-27T12:00:00Z"}}`
	marker = `{"message":{"subject":"one.1","seq":7,"time":"2026-11-27T12:00:00Z","hdrs":` +
		`"TkFUUy8xLjANCktWLU9wZXJhdGlvbjogREVMDQoNCg=="}}`
)

// startOldLeader returns it with a connection to its server.
func startOldLeader(t *testing.T) (*oldLeader, *natsconf.Conn) {
	t.Helper()
	ns, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	if !ns.ReadyForConnections(natstest.TestTimeout) {
		t.Fatal("the server does not start")
	}
	o := &oldLeader{read: make(chan struct{}, 1000)}
	o.found.Store(new(absent))
	o.silence.Store(int64(time.Millisecond))
	nc := natstest.ConnectTo(t, ns.ClientURL()).NC
	for subject, answer := range map[string]func() string{
		"$JS.API.STREAM.INFO.ONE": func() string {
			o.asked.Add(1)
			return fmt.Sprintf(`{"config":{"name":"ONE"},"cluster":{"leader":"n1","replicas":[`+
				`{"name":"n2","active":%d},{"name":"n3","active":%d}]}}`, o.silence.Load(), time.Hour)
		},
		"$JS.API.STREAM.MSG.GET.ONE": func() string {
			o.read <- struct{}{}
			return *o.found.Load()
		},
	} {
		if _, err := nc.Subscribe(subject, func(m *nats.Msg) {
			if err := m.Respond([]byte(answer())); err != nil {
				t.Error(err)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return o, natstest.ConnectTo(t, ns.ClientURL())
}

// What the answering server does not have, or has deleted, may be with its successor: the answer waits until
// a majority follows a leader. What it has is answered at once.
func TestNotFoundNeedsALeaderThatIsHeard(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer string
		want   error
	}{
		"not there": {absent, natsconf.ErrNotFound},
		"deleted":   {marker, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old, conn := startOldLeader(t)
			old.found.Store(&test.answer)
			old.silence.Store(int64(5 * time.Second))
			hurried, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if _, err := conn.Last(hurried, "ONE", "one.1"); !errors.Is(err, natsconf.ErrUnavailable) {
				t.Errorf("of a leader that nobody answers: %v", err)
			}
			ctx, cancel := wait.For(t.Context(), natstest.TestTimeout)
			defer cancel()
			result := make(chan error, 1)
			before := old.asked.Load()
			go func() {
				_, err := conn.Last(ctx, "ONE", "one.1")
				result <- err
			}()
			natstest.Await(t, "the leader is asked again", func() bool {
				return old.asked.Load() > before+1
			})
			select {
			case err := <-result:
				t.Fatal("meanwhile:", err)
			default:
			}
			old.silence.Store(int64(time.Millisecond))
			if err := natstest.Receive(t, "the read is answered", result); !errors.Is(err, test.want) {
				t.Errorf("of a leader that is heard: %v", err)
			}

			old.silence.Store(int64(5 * time.Second))
			old.found.Store(new(there))
			before = old.asked.Load()
			if m, err := conn.Last(t.Context(), "ONE", "one.1"); err != nil || m.Sequence != 7 {
				t.Errorf("what is there: %v, %v", m, err)
			}
			if asked := old.asked.Load() - before; asked != 0 {
				t.Errorf("for what is there the leader was asked %d times", asked)
			}
		})
	}
}

// The successor has what the old leader did not have: a read that waits gets it.
func TestWaitingReadFindsWhatTheNextLeaderHas(t *testing.T) {
	t.Parallel()
	old, conn := startOldLeader(t)
	old.silence.Store(int64(5 * time.Second))
	ctx, cancel := wait.For(t.Context(), natstest.TestTimeout)
	defer cancel()
	result := make(chan error, 1)
	go func() {
		_, err := conn.Last(ctx, "ONE", "one.1")
		result <- err
	}()
	natstest.Receive(t, "it is read", old.read)
	old.found.Store(new(there))
	old.silence.Store(int64(time.Millisecond))
	natstest.Receive(t, "it is read again", old.read)
	if err := natstest.Receive(t, "the read is answered", result); err != nil {
		t.Error(err)
	}
}

// Reads of what is not there share one question, whichever message they ask for.
func TestNotFoundAsksOnce(t *testing.T) {
	t.Parallel()
	old, conn := startOldLeader(t)
	if _, err := conn.Last(t.Context(), "ONE", "one.0"); !errors.Is(err, natsconf.ErrNotFound) {
		t.Fatal(err) // and the handle of the stream is there
	}
	before, began := old.asked.Load(), time.Now()
	var crowd sync.WaitGroup
	for n := range 200 {
		crowd.Go(func() {
			if _, err := conn.Last(t.Context(), "ONE", fmt.Sprint("one.", n)); !errors.Is(err,
				natsconf.ErrNotFound) {
				t.Error(err)
			}
		})
	}
	crowd.Wait()
	if asked, most := old.asked.Load()-before, int64(time.Since(began)/time.Second)+1; asked > most {
		t.Errorf("the leader was asked %d times for 200 reads in %s", asked, time.Since(began))
	}
}

// Where there is no other copy nothing is asked, beyond once a minute; of a server in this process, never.
func TestNotFoundOfASingleServer(t *testing.T) {
	natstest.NeedsEmbedded(t, "it is about servers that are alone")
	t.Parallel()
	url := natstest.Bare(t, t.TempDir())
	for name, test := range map[string]struct {
		conn *natsconf.Conn
		most int64
	}{
		"in this process": {natstest.Start(t), 1}, // the stream is looked up
		"external":        {natstest.ConnectTo(t, url), 2},
	} {
		natstest.Ensure(t, test.conn)
		watch := natstest.ConnectTo(t, url)
		if name == "in this process" {
			watch = test.conn
		}
		var asked atomic.Int64
		if _, err := watch.NC.Subscribe("$JS.API.STREAM.INFO.>", func(*nats.Msg) {
			asked.Add(1)
		}); err != nil {
			t.Fatal(err)
		}
		if err := watch.NC.Flush(); err != nil {
			t.Fatal(err)
		}
		for n := range 100 {
			_, err := test.conn.Last(t.Context(), topology.StreamCompletions, fmt.Sprint("completion.", n))
			if !errors.Is(err, natsconf.ErrNotFound) {
				t.Fatal(err)
			}
		}
		if err := watch.NC.Flush(); err != nil {
			t.Fatal(err)
		}
		if asked.Load() > test.most {
			t.Errorf("%s: asked %d times, want %d at most", name, asked.Load(), test.most)
		}
	}
}
