package provision_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/provision"
	"verifyd/natsconf/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(natstest.Tests(m)) }

func maxAge(t *testing.T, conn *natsconf.Conn) time.Duration {
	t.Helper()
	s, err := conn.JS.Stream(t.Context(), topology.StreamCompletions)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().Config.MaxAge
}

// Only a process that may update does, and reports what it changed; settings that verifyd does not define
// stay as the operator set them.
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
		"max_msgs": func(c *jetstream.StreamConfig) { c.MaxMsgs = 1000 },
		"subjects": func(c *jetstream.StreamConfig) { c.Subjects = append(c.Subjects, "more.*") },
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

// Three replicas on a single server are refused at once, not waited for.
func TestCopiesOnALoneServerAreRefused(t *testing.T) {
	natstest.NeedsEmbedded(t, "it is alone")
	t.Parallel()
	conn := natstest.Start(t)
	if err := conn.JS.DeleteStream(t.Context(), topology.StreamCompletions); err != nil {
		t.Fatal(err)
	}
	err := provision.Ensurer{Conn: conn,
		Topology: topology.New(topology.Options{Replicas: 3})}.EnsureAtBoot(t.Context())
	if err == nil || !strings.Contains(err.Error(), "replicas > 1") {
		t.Errorf("err = %v", err)
	}
}

// Two of three servers are up, and know that the third is down: three replicas are waited for, not refused.
func TestCopiesWaitForServersThatJoin(t *testing.T) {
	t.Parallel()
	trio := natstest.StartTrio(t)
	conn := trio.Connect(t)
	natstest.Ensure(t, conn)
	for _, name := range trio.Names() {
		trio.Kill(name)
	}
	trio.Start(t, "n1")
	trio.Start(t, "n2")
	later := jetstream.StreamConfig{
		Name: "LATER", Subjects: []string{"later"}, Replicas: natstest.Replicas,
		MaxBytes: -1, MaxMsgs: -1, MaxMsgsPerSubject: -1, MaxMsgSize: -1, MaxConsumers: -1,
		Duplicates: 2 * time.Minute,
	}
	natstest.Await(t, "the two know that the third is away", func() bool {
		_, err := conn.JS.CreateStream(t.Context(), later)
		if err == nil { // they do not know yet
			_ = conn.JS.DeleteStream(t.Context(), later.Name)
		}
		return err != nil && strings.Contains(err.Error(), "no suitable peers")
	})
	told, up := make(chan error, 1), make(chan error, 1)
	table := topology.Topology{Streams: []jetstream.StreamConfig{later}}
	waiting := []func(error){func(err error) { told <- err }}
	go func() {
		up <- provision.Ensurer{Conn: conn, Topology: table, Waiting: waiting}.EnsureAtBoot(t.Context())
	}()
	select {
	case err := <-told:
		t.Log(err) // on a busy machine another fault may come first; what ends the start comes below
	case err := <-up:
		t.Fatalf("it is not waited for: %v", err)
	case <-time.After(natstest.TestTimeout):
		t.Fatal("nothing is told about the wait")
	}
	trio.Start(t, "n3")
	if err := natstest.Receive(t, "the start ends", up); err != nil {
		t.Error(err)
	}
}
