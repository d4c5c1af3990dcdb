package move

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/store"
	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/storestate"
	"verifyd/natsconf/topology"
	"verifyd/sessions"
	"verifyd/sessions/facts"
)

// newMover returns a store in service, and a new one to move it to, both in this process.
func newMover(t *testing.T) *Move {
	t.Helper()
	key := secretbox.NewKey()
	open := func(why store.Purpose) *store.Store {
		st := must[*store.Store](t)(store.Open(t.Context(), config.Store{
			DataDir: t.TempDir(), Sync: embedded.SyncAlways, StoreBytes: 64 << 20, Key: &key,
			Topology: topology.Options{Replicas: 1, Embedded: true},
		}, zerolog.Nop(), why))
		t.Cleanup(st.Close)
		return st
	}
	m := &Move{From: open(store.ToServe), To: open(store.ToFill), Assets: store.Assets(), Running: true}
	if err := m.Pair(t.Context(), "the old store"); err != nil {
		t.Fatal(err)
	}
	return m
}

// fact stores a fact as the service would.
func fact(t *testing.T, st *store.Store, subject string, v any) {
	t.Helper()
	data := must[[]byte](t)(json.Marshal(v))
	natstest.Publish(t, st.Conn, subject, data)
}

func standing(t *testing.T, st *store.Store) storestate.Record {
	t.Helper()
	return must[storestate.Record](t)(storestate.Read(t.Context(), st.Conn))
}

// A move is aborted while its finish waits for an open claim: the finish gives up, the old store stays in
// service with nothing sealed, and the move can be finished later.
func TestAbortWhileAMoveFinishes(t *testing.T) {
	t.Parallel()
	m := newMover(t)
	const sid = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	now := time.Now()
	fact(t, m.From, "completion."+sid, map[string]any{"v": 1, "state": sessions.Verified})
	fact(t, m.From, "claim."+sid+".1", facts.Claim{
		At: now, Deadline: now.Add(time.Minute), SettleAfter: now.Add(time.Minute),
	})
	ended := make(chan error, 1)
	go func() {
		_, err := m.Finish(t.Context(), "the new store")
		ended <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), natstest.TestTimeout)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for standing(t, m.From).State != storestate.StateDraining {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("the old store is not leaving")
		}
	}
	if err := Abort(t.Context(), m.From); err != nil {
		t.Fatal(err)
	}
	fact(t, m.From, "result."+sid+".1", facts.Result{Verdict: facts.VerdictDelivered, At: now})
	if err := <-ended; err == nil {
		t.Error("a move finishes from a store that was taken back")
	}
	if s := standing(t, m.From); s.State != storestate.StateOpen {
		t.Errorf("the old store is %s", s.State)
	}
	if s := standing(t, m.To); s.State != storestate.StateFilling {
		t.Errorf("the new store is %s", s.State)
	}
	// it is in service
	fact(t, m.From, "completion.bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb", map[string]any{
		"v": 1, "state": sessions.Canceled,
	})
	if _, err := m.Finish(t.Context(), "the new store"); err != nil {
		t.Fatal(err)
	}
	if s := standing(t, m.To); s.State != storestate.StateOpen {
		t.Errorf("the new store is %s", s.State)
	}
	if s := standing(t, m.From); s.State != storestate.StateRetired {
		t.Errorf("the old store is %s", s.State)
	}
}

// A store whose master key was changed is moved with its earlier keys: what they have sealed opens at the new
// store, with the new key alone, and earlier builds refuse that one too.
func TestMoveBringsTheEarlierMasterKeys(t *testing.T) {
	t.Parallel()
	old, key := secretbox.NewKey(), secretbox.NewKey()
	from, to := t.TempDir(), t.TempDir()
	open := func(dir string, key secretbox.Key, why store.Purpose) (*store.Store, error) {
		return store.Open(t.Context(), config.Store{
			DataDir: dir, Sync: embedded.SyncAlways, StoreBytes: 256 << 20, Key: &key,
			Topology: topology.Options{Replicas: 1, Embedded: true},
		}, zerolog.Nop(), why)
	}
	st := must[*store.Store](t)(open(from, old, store.ToServe))
	made := must[account.Account](t)(st.Accounts.CreateAccount(t.Context(), access.Operator(""), "a"))
	if err := storestate.ChangeRing(t.Context(), st.Conn, old, func(r *secretbox.Ring) ([]byte, error) {
		return r.Admit(key, time.Now())
	}); err != nil {
		t.Fatal(err)
	}
	if err := storestate.ChangeRing(t.Context(), st.Conn, key, func(r *secretbox.Ring) ([]byte, error) {
		return r.Alone(time.Now())
	}); err != nil {
		t.Fatal(err)
	}
	st.Close()
	m := &Move{From: must[*store.Store](t)(open(from, key, store.ToServe)), Assets: store.Assets()}
	t.Cleanup(m.From.Close)
	m.To = must[*store.Store](t)(open(to, key, store.ToFill))
	closeTo := sync.OnceFunc(m.To.Close)
	t.Cleanup(closeTo)
	if err := m.Pair(t.Context(), "the old store"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Finish(t.Context(), "the new store"); err != nil {
		t.Fatal(err)
	}
	check, err := m.To.Conn.Last(t.Context(), topology.BucketStream(topology.BucketAccounts),
		storestate.CheckSubject())
	if err != nil || key.Checks(check.Data) {
		t.Errorf("an earlier build opens the new store, and not what is in it: %v", err)
	}
	closeTo()
	if _, err := open(to, old, store.ToServe); err == nil || !strings.Contains(err.Error(), "was changed") {
		t.Errorf("by the old key: %v", err)
	}
	moved := must[*store.Store](t)(open(to, key, store.ToServe))
	t.Cleanup(moved.Close)
	a := must[account.Account](t)(moved.Accounts.Account(t.Context(), made.ID))
	if len(a.Secrets) != 1 || a.Secrets[0].Value != made.Secrets[0].Value {
		t.Errorf("its secrets are %d others", len(a.Secrets))
	}
}

// What the old store has removed after it was copied, such as the events of an erased user, does not keep a
// move from finishing, and is not in the new store.
func TestMoveAfterEventsWereRemoved(t *testing.T) {
	t.Parallel()
	m := newMover(t)
	for _, sid := range []string{"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"} {
		fact(t, m.From, "session.created."+sid, map[string]any{"v": 1})
	}
	if _, err := m.CopyOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.From.Conn.Purge(t.Context(), topology.StreamEvents,
		"session.*.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Finish(t.Context(), "the new store"); err != nil {
		t.Fatal(err)
	}
	msgs, err := m.To.Conn.Newest(t.Context(), topology.StreamEvents, ">")
	if err != nil || len(msgs) != 1 {
		t.Errorf("%d events at the new store, %v", len(msgs), err)
	}
}

// A move that is repeated after its end reports that, and does not mistake another store for the one that it
// filled. A failed finish reports the state that it leaves.
func TestMoveKnowsItsEnd(t *testing.T) {
	t.Parallel()
	m := newMover(t)
	m.Running = false
	if ended, err := m.Ended(t.Context()); ended || err != nil {
		t.Errorf("before: %t, %v", ended, err)
	}
	failed := errors.New("the disk")
	if err := m.NotFinished(t.Context(), failed); !errors.Is(err, failed) ||
		!strings.Contains(err.Error(), "in service as before") {
		t.Error(err)
	}
	all, err := m.Finish(t.Context(), "the new store")
	if err != nil || len(all) == 0 {
		t.Fatalf("%v, %v", all, err)
	}
	if err := m.NotFinished(t.Context(), failed); !errors.Is(err, failed) ||
		!strings.Contains(err.Error(), "closed permanently") {
		t.Error(err)
	}
	if ended, err := m.Ended(t.Context()); !ended || err != nil {
		t.Errorf("after: %t, %v", ended, err)
	}
	if all, err := m.Finish(t.Context(), "the new store"); err != nil || len(all) != 0 {
		t.Errorf("a repeat compares %v, %v", all, err)
	}
	other := newMover(t)
	other.Running = false
	if _, err := other.Finish(t.Context(), "another store"); err != nil {
		t.Fatal(err)
	}
	other.From = m.From
	if ended, err := other.Ended(t.Context()); ended || err == nil ||
		!strings.Contains(err.Error(), "is not the one that this one was moved to") {
		t.Errorf("another store that is in service: %t, %v", ended, err)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(natstest.Tests(m)) }

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
