package natsconf_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"verifyd/natsconf"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/provision"
	"verifyd/natsconf/topology"
)

func TestMain(m *testing.M) {
	natstest.Parallel(8)
	goleak.VerifyTestMain(natstest.Budget(m, 90*time.Second))
}

var update = flag.Bool("update", false, "write testdata anew")

// The golden file shows every change of the topology in review. Run with -update after a wanted one.
func TestTopologyIsAsWritten(t *testing.T) {
	var got bytes.Buffer
	for _, replicas := range []int{1, 3} {
		fmt.Fprintf(&got, "# replicas: %d\n", replicas)
		enc := json.NewEncoder(&got)
		enc.SetIndent("", "  ")
		if err := enc.Encode(topology.New(topology.Options{
			Replicas: replicas, Embedded: replicas == 1,
		})); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join("testdata", "topology.golden")
	if *update {
		if err := os.WriteFile(path, got.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("the topology changed; if wanted: go test ./natsconf -run Topology -update\n%s",
			got.String())
	}
}

func maxAge(t *testing.T, conn *natsconf.Conn) time.Duration {
	t.Helper()
	s, err := conn.JS.Stream(t.Context(), topology.StreamCompletions)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().Config.MaxAge
}

// Only who may update does, and says what it changed; what verifyd has no opinion on stays as the operator
// has it.
func TestEnsureIsHarmlessToRepeatAndUpdatesWhereAllowed(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	natstest.Ensure(t, conn)
	s, err := conn.JS.Stream(t.Context(), topology.StreamCompletions)
	if err != nil {
		t.Fatal(err)
	}
	owned := s.CachedInfo().Config
	owned.Compression, owned.Metadata = jetstream.S2Compression, map[string]string{"owner": "ops"}
	if _, err := conn.JS.UpdateStream(t.Context(), owned); err != nil {
		t.Fatal(err)
	}
	o := natstest.Options(conn)
	o.KeepResults = 100 * time.Hour
	longer := provision.Ensurer{Conn: conn, Topology: topology.New(o)}
	if err := longer.Ensure(t.Context()); err != nil || maxAge(t, conn) != topology.DefaultKeepResults {
		t.Errorf("without leave to update: %v, max age %s", err, maxAge(t, conn))
	}
	var changed []string
	longer.Update, longer.Changed = true, func(asset, field, from, to string) {
		changed = append(changed, asset+" "+field+" "+from+" "+to)
	}
	if err := longer.Ensure(t.Context()); err != nil || maxAge(t, conn) != 100*time.Hour {
		t.Errorf("with leave to update: %v, max age %s", err, maxAge(t, conn))
	}
	if len(changed) != 5 || !strings.HasPrefix(changed[0], "stream COMPLETIONS max_age") {
		t.Errorf("changed = %q", changed)
	}
	if s, err = conn.JS.Stream(t.Context(), topology.StreamCompletions); err != nil {
		t.Fatal(err)
	}
	if c := s.CachedInfo().Config; c.Compression != jetstream.S2Compression || c.Metadata["owner"] != "ops" {
		t.Errorf("the operator's own settings are gone: %v %v", c.Compression, c.Metadata)
	}
}

func TestEnsureRefusesDriftByName(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	ctx := t.Context()
	drifts := map[string]func(*jetstream.StreamConfig){
		"allow_direct": func(c *jetstream.StreamConfig) { c.AllowDirect = true },
		"subjects":     func(c *jetstream.StreamConfig) { c.Subjects = append(c.Subjects, "more.*") },
	}
	for field, change := range drifts {
		s, err := conn.JS.Stream(ctx, topology.StreamUsage)
		if err != nil {
			t.Fatal(err)
		}
		good := s.CachedInfo().Config
		bad := good
		change(&bad)
		if _, err := conn.JS.UpdateStream(ctx, bad); err != nil {
			t.Fatal(err)
		}
		err = provision.Ensurer{Conn: conn, Topology: topology.New(natstest.Options(conn)),
			Update: true}.EnsureAtBoot(ctx)
		if drift, ok := errors.AsType[*provision.DriftError](err); !ok || drift.Field != field ||
			!strings.Contains(err.Error(), "USAGE") {
			t.Errorf("drift of %s: err = %v", field, err)
		}
		if _, err := conn.JS.UpdateStream(ctx, good); err != nil {
			t.Fatal(err)
		}
	}
}

// The server does not answer, as it does after a failed disk: each publish ends as uncertain, and none waits
// for another.
func TestUnansweredPublishesEndOneByOne(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	if err := conn.JS.DeleteStream(t.Context(), topology.StreamEvents); err != nil {
		t.Fatal(err)
	}
	// A subscriber that is no stream takes the message and never answers.
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
	natstest.Serve(t, w)
	wg.Wait()
}

func TestDataDirectoryHasOneOwner(t *testing.T) {
	natstest.NeedsEmbedded(t, "the lock of its data directory")
	t.Parallel()
	dir := t.TempDir()
	_, stop := natstest.StartIn(t, dir)
	_, err := embedded.Open(embedded.Options{DataDir: dir, Log: zerolog.Nop()})
	if !errors.Is(err, embedded.ErrLocked) {
		t.Fatalf("second owner: %v, want ErrLocked", err)
	}
	stop()
	natstest.StartIn(t, dir)
}

func TestEndpointFileLetsOnlyItsReaderIn(t *testing.T) {
	natstest.NeedsEmbedded(t, "the endpoint file in its data directory")
	t.Parallel()
	dir := t.TempDir()
	natstest.StartIn(t, dir)
	info, err := os.Stat(filepath.Join(dir, embedded.EndpointFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode = %v, %v; want 0600", info.Mode(), err)
	}
	end, err := embedded.ReadEndpoint(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(end.URL, "nats://127.0.0.1:") {
		t.Errorf("listens on %s, want loopback", end.URL)
	}
	conn, err := natsconf.Connect(t.Context(), natsconf.ConnectOptions{
		URL: end.URL, User: end.User, Password: end.Password, Log: zerolog.Nop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if conn, err := natsconf.Connect(t.Context(),
		natsconf.ConnectOptions{URL: end.URL, Log: zerolog.Nop()}); err == nil {
		conn.Close()
		t.Error("connected without the credential")
	}
}

// A restarted server keeps its port and takes back the connections it had, the in-process ones included.
func TestConnectionsComeBackAfterTheServerRestarts(t *testing.T) {
	t.Parallel()
	e, err := embedded.Open(embedded.Options{DataDir: t.TempDir(), Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	stop := natstest.Serve(t, e)
	<-e.Ready()
	conn, err := natsconf.Connect(t.Context(), natsconf.ConnectOptions{Embedded: e, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	natstest.Ensure(t, conn)
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
	<-back
	if _, err := w.Publish(t.Context(),
		&nats.Msg{Subject: "completion.a", Data: []byte("2")}); !errors.Is(err, natsconf.ErrConflict) {
		t.Errorf("after the restart: %v, want the first message's conflict", err)
	}
	m, err := conn.Last(t.Context(), topology.StreamCompletions, "completion.a")
	if err != nil || string(m.Data) != "1" {
		t.Errorf("last = %v, %v", m, err)
	}
}

func TestLastSaysWhatIsNotThere(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	if _, err := conn.Last(t.Context(), topology.StreamCompletions, "completion.nobody"); !errors.Is(err,
		natsconf.ErrNotFound) {
		t.Errorf("err = %v, want ErrNotFound", err)
	}
}

// Many callers race for few subjects: the batches that carry a conflict fall back to single publishes, each
// subject has one winner, every loser is told, and what was acknowledged is what is stored.
func TestWriterGivesEachCallerItsOwnResult(t *testing.T) {
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

func TestFullStoreSaysSo(t *testing.T) {
	t.Parallel()
	e, err := embedded.Open(embedded.Options{
		DataDir: t.TempDir(), StoreBytes: 64 << 10, Log: zerolog.Nop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	natstest.Serve(t, e)
	<-e.Ready()
	conn, err := natsconf.Connect(t.Context(), natsconf.ConnectOptions{Embedded: e, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	natstest.Ensure(t, conn)
	w := natstest.Writer(t, conn, topology.StreamCompletions)
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
