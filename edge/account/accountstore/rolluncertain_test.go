package accountstore_test

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/account/audit"
	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/natstest/virtual"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
)

// farStore returns a store with an account, and another whose connection hears nothing any more once it has
// written the mark; with swallow the server does not hear that, either.
func farStore(t *testing.T, mark string, swallow bool) (near, far *accountstore.Store, a account.Account) {
	t.Helper()
	server, master := virtual.NewBroker(t), secretbox.NewKey()
	conn := server.Connect(t, nil)
	natstest.Ensure(t, conn)
	near = storeOn(t, conn, master)
	a, err := near.CreateAccount(t.Context(), operator, "a")
	if err != nil {
		t.Fatal(err)
	}
	var deaf atomic.Bool
	return near, storeOn(t, server.Connect(t, func() virtual.Pass {
		return func(toServer bool, data []byte) bool {
			if toServer && bytes.Contains(data, []byte(mark)) {
				deaf.Store(true)
				return !swallow
			}
			return toServer || !deaf.Load()
		}
	}), master), a
}

// A roll with an unknown result locks nobody out: the caller has the old key and gets the new one, and one of
// them works. A later read shows which.
func TestRollWithoutAnAnswerLeavesAKeyThatWorks(t *testing.T) {
	t.Parallel()
	for name, swallow := range map[string]bool{"stored": false, "lost": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtual.Bubble(t, func(t *testing.T) { rollWithoutAnAnswer(t, swallow) })
		})
	}
}

func rollWithoutAnAnswer(t *testing.T, swallow bool) {
	near, far, a := farStore(t, "Nats-Batch-Commit", swallow)
	_, old, err := near.CreateKey(t.Context(), operator, a.ID, account.KeyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	secret, next, err := far.RollKey(ctx, operator, a.ID, old.ID, 0)
	if !errors.Is(err, natsconf.ErrUncertain) || secret == "" || next.Replaces != old.ID {
		t.Fatalf("it gives the key %t of %+v, and %v", secret != "", next, err)
	}
	working := 0
	keys, err := near.Keys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		if k.State(time.Now()) != account.KeyActive {
			continue
		}
		if working++; k.ID != old.ID && k.ID != next.ID {
			t.Errorf("the key that works is %s", k.ID)
		}
	}
	if stored := len(keys) == 2; working != 1 || stored == swallow {
		t.Errorf("%d of %d keys work", working, len(keys))
	}
}

// The caller who rotates a signing secret gets the new one even if it is unknown whether it is stored, and
// the public keys show which one signs.
func TestRotationWithoutAnAnswerReturnsTheSecret(t *testing.T) {
	t.Parallel()
	for name, swallow := range map[string]bool{"stored": false, "lost": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtual.Bubble(t, func(t *testing.T) { rotationWithoutAnAnswer(t, swallow) })
		})
	}
}

func rotationWithoutAnAnswer(t *testing.T, swallow bool) {
	near, far, a := farStore(t, "PUB $KV.accounts.", swallow)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	got, err := far.RotateSecret(ctx, operator, a.ID, time.Hour)
	if !errors.Is(err, natsconf.ErrUncertain) || len(got.Secrets) == 0 ||
		got.Secrets[0].Value == a.Secrets[0].Value {
		t.Fatalf("it gives %d secrets, and %v", len(got.Secrets), err)
	}
	stands, err := near.Account(t.Context(), a.ID)
	if err != nil {
		t.Fatal(err)
	}
	want := a
	if !swallow {
		want = got
	}
	if near.PublicKeys(stands)[0].Value != near.PublicKeys(want)[0].Value {
		t.Error("another secret signs")
	}
}

func storeOn(t *testing.T, conn *natsconf.Conn, master secretbox.Key) *accountstore.Store {
	t.Helper()
	s, err := accountstore.New(t.Context(), conn, master)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A key is shown even if it is stored and its record could not be written: the old one may have ended with
// it.
func TestKeysAreHandedOutWithoutTheirRecord(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.account(t, "a")
	_, old := h.key(t, a, account.KeyOptions{})
	stream, err := h.conn.JS.Stream(t.Context(), topology.StreamAudit)
	if err != nil {
		t.Fatal(err)
	}
	limit := func(most int32) {
		t.Helper()
		config := stream.CachedInfo().Config
		config.MaxMsgSize = most
		if _, err := h.conn.JS.UpdateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
	}
	limit(1) // the log accepts nothing
	for what, hand := range map[string]func() (string, account.Key, error){
		"create": func() (string, account.Key, error) {
			return h.store.CreateKey(t.Context(), operator, a.ID, account.KeyOptions{})
		},
		"roll": func() (string, account.Key, error) {
			return h.store.RollKey(t.Context(), operator, a.ID, old.ID, 0)
		},
	} {
		secret, k, err := hand()
		if !errors.Is(err, natsconf.ErrUncertain) || secret == "" {
			t.Fatalf("%s: the key %t, %v", what, secret != "", err)
		}
		natstest.Await(t, what+": the key works", func() bool {
			p, err := h.mirror.Lookup(secret)
			return err == nil && p.Key.ID == k.ID
		})
	}
	limit(-1)
	if err := h.store.Repair(t.Context()); err != nil {
		t.Fatal(err)
	}
	log := map[string]bool{}
	for _, r := range h.all(t, a.ID, 10) {
		log[r.What] = true
	}
	if !log[audit.KeyWasRolled] {
		t.Errorf("the log after all: %v", log)
	}
}
