package natsconf_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"verifyd/natsconf"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/provision"
	"verifyd/natsconf/storestate"
	"verifyd/natsconf/topology"
)

// muteGate is a gate that, told so, carries nothing any more on the connections it has, and ends none of
// them: as a server looks that was stopped or cut off. New ones it carries.
type muteGate struct {
	*gate

	mu   sync.Mutex
	mute chan struct{} // closed: the connections made by then are mute
}

func newMuteGate(t *testing.T, to string) *muteGate {
	t.Helper()
	g := &muteGate{mute: make(chan struct{})}
	g.gate = newGate(t, to, func() func(bool) bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		mute := g.mute
		return func(bool) bool {
			select {
			case <-mute:
				return false
			default:
				return true
			}
		}
	})
	return g
}

func (g *muteGate) fallSilent() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.mute)
	g.mute = make(chan struct{})
}

// A server that says nothing any more, and does not hang up either, is left within seconds, and a start
// outlasts that.
func TestSilentServerIsLeft(t *testing.T) {
	natstest.NeedsEmbedded(t, "its endpoint; the connection is the same one")
	t.Parallel()
	dir := t.TempDir()
	natstest.StartIn(t, dir)
	end, err := embedded.ReadEndpoint(dir)
	if err != nil {
		t.Fatal(err)
	}
	g := newMuteGate(t, strings.TrimPrefix(end.URL, "nats://"))
	conn, err := natsconf.Connect(t.Context(), natsconf.ConnectOptions{
		URL: "nats://" + g.Addr().String(), User: end.User, Password: end.Password, Log: zerolog.Nop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	back := conn.Back()
	g.fallSilent()
	opened := make(chan error, 1)
	go func() { opened <- storestate.OpenAtBoot(t.Context(), conn) }()
	select {
	case <-back:
	case <-time.After(20 * time.Second):
		t.Fatal("after 20 s it still waits for a server that says nothing")
	}
	if _, err := conn.Last(t.Context(), topology.StreamCompletions, "completion.nobody"); !errors.Is(err,
		natsconf.ErrNotFound) {
		t.Errorf("over the new connection: %v", err)
	}
	if err := <-opened; err != nil {
		t.Errorf("a start meanwhile: %v", err)
	}
}

// What may pass is tried again, what will not is told at once.
func TestAtBootTriesAgain(t *testing.T) {
	t.Parallel()
	passing, final := errors.New("no leader yet"), errors.New("another key")
	tries, told := 0, []error(nil)
	err := natsconf.AtBoot(t.Context(), func(context.Context) error {
		tries++
		if tries == 3 {
			return final
		}
		return passing
	}, func(err error) bool { return errors.Is(err, final) }, func(err error) { told = append(told, err) })
	if !errors.Is(err, final) || tries != 3 || len(told) != 1 || !errors.Is(told[0], passing) {
		t.Errorf("after %d tries, of which %v was told: %v", tries, told, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = natsconf.AtBoot(ctx, func(context.Context) error { cancel(); return passing }, func(error) bool {
		return false
	})
	if !errors.Is(err, context.Canceled) || !errors.Is(err, passing) {
		t.Errorf("at the end of its time: %v, want both that and the last fault", err)
	}
}

// Three copies on a server that is alone are refused at once, not waited for.
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

// Two of three servers are up, and know that the third is away: three copies are waited for, not refused.
func TestCopiesWaitForServersThatJoin(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped under -short: three servers, started twice")
	}
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
	}
	trio.Start(t, "n3")
	if err := <-up; err != nil {
		t.Error(err)
	}
}
