package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/seal"
	"verifyd/sessions"
)

// newMover gives a store in service, and a new one to move it to, both in this process.
func newMover(t *testing.T) *mover {
	t.Helper()
	key := seal.NewKey()
	open := func(why purpose) *store {
		st := must[*store](t)(openStore(t.Context(), storeConfig{
			dataDir: t.TempDir(), sync: natsconf.SyncAlways, storeBytes: 64 << 20, key: &key, topology: natsconf.TopologyOptions{Replicas: 1, Embedded: true},
		}, zerolog.Nop(), why))
		t.Cleanup(st.close)
		return st
	}
	m := &mover{from: open(toServe), to: open(toFill), assets: everything(), running: true}
	if err := m.pair(t.Context(), "the old store"); err != nil {
		t.Fatal(err)
	}
	return m
}

// fact stores a fact as the service would.
func fact(t *testing.T, st *store, subject string, v any) {
	t.Helper()
	data := must[[]byte](t)(json.Marshal(v))
	if _, err := st.conn.JS.Publish(t.Context(), subject, data); err != nil {
		t.Fatal(err)
	}
}

func standing(t *testing.T, st *store) natsconf.Standing {
	t.Helper()
	return must[natsconf.Standing](t)(st.conn.Standing(t.Context()))
}

// A store is taken back while a move that finishes waits for an open claim: the move gives up, the old store stays in service with
// nothing sealed, and the move can be finished later.
func TestAbortWhileAMoveFinishes(t *testing.T) {
	beside(t)
	m := newMover(t)
	const sid = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	now := time.Now()
	fact(t, m.from, "completion."+sid, map[string]any{"v": 1, "state": sessions.Verified})
	fact(t, m.from, "claim."+sid+".1", sessions.Claim{At: now, Deadline: now.Add(time.Minute), SettleAfter: now.Add(time.Minute)})
	ended := make(chan error, 1)
	go func() {
		_, err := m.finish(t.Context(), "the new store")
		ended <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), natstest.LastResort)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for standing(t, m.from).State != natsconf.StandingLeaving {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("the old store is not leaving")
		}
	}
	if err := abortMove(t.Context(), m.from); err != nil {
		t.Fatal(err)
	}
	fact(t, m.from, "result."+sid+".1", sessions.Result{Verdict: sessions.VerdictDelivered, At: now})
	if err := <-ended; err == nil {
		t.Error("a move finishes from a store that was taken back")
	}
	if s := standing(t, m.from); s.State != natsconf.StandingOpen {
		t.Errorf("the old store is %s", s.State)
	}
	if s := standing(t, m.to); s.State != natsconf.StandingFilling {
		t.Errorf("the new store is %s", s.State)
	}
	fact(t, m.from, "completion.bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb", map[string]any{"v": 1, "state": sessions.Canceled}) // it is in service
	if _, err := m.finish(t.Context(), "the new store"); err != nil {
		t.Fatal(err)
	}
	if s := standing(t, m.to); s.State != natsconf.StandingOpen {
		t.Errorf("the new store is %s", s.State)
	}
	if s := standing(t, m.from); s.State != natsconf.StandingLeft {
		t.Errorf("the old store is %s", s.State)
	}
}

// A backup of a store that was moved cannot be restored as if nothing had happened since: the new store sends what was due.
func TestRestoreOfAMovedStoreDoesNotGoOn(t *testing.T) {
	beside(t)
	m := newMover(t)
	m.running = false
	if _, err := m.finish(t.Context(), "the new store"); err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := (backupCmd{}).write(t.Context(), console{err: io.Discard}, m.from, &text); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "backup")
	if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (restoreCmd{File: file, GoOn: true}).Run(t.Context(), console{err: io.Discard}); err == nil || !strings.Contains(err.Error(), "moved elsewhere") {
		t.Errorf("restore --go-on: %v", err)
	}
}

// What the old store has taken away after it was brought, as the events of a user who was erased, keeps no move from its end, and is
// not at the new store.
func TestMoveAfterEventsWereTakenAway(t *testing.T) {
	beside(t)
	m := newMover(t)
	for _, sid := range []string{"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"} {
		fact(t, m.from, "session.created."+sid, map[string]any{"v": 1})
	}
	if _, err := m.copyOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.from.conn.Purge(t.Context(), natsconf.StreamEvents, "session.*.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.finish(t.Context(), "the new store"); err != nil {
		t.Fatal(err)
	}
	msgs, err := m.to.conn.Newest(t.Context(), natsconf.StreamEvents, ">")
	if err != nil || len(msgs) != 1 {
		t.Errorf("%d events at the new store, %v", len(msgs), err)
	}
}
