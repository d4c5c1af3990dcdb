package storestate_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/storestate"
	"verifyd/natsconf/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(natstest.Tests(m)) }

// admit lets another key open the store, and alone lets only that one.
func admit(t *testing.T, c *natsconf.Conn, key, next secretbox.Key) {
	t.Helper()
	change(t, c, key, func(r *secretbox.Ring) ([]byte, error) { return r.Admit(next, time.Now()) })
}

func alone(t *testing.T, c *natsconf.Conn, key secretbox.Key) {
	t.Helper()
	change(t, c, key, func(r *secretbox.Ring) ([]byte, error) { return r.Alone(time.Now()) })
}

func change(t *testing.T, c *natsconf.Conn, key secretbox.Key, edit func(*secretbox.Ring) ([]byte, error)) {
	t.Helper()
	if err := storestate.ChangeRing(t.Context(), c, key, edit); err != nil {
		t.Fatal(err)
	}
}

// opened reports whether a key opens the store.
func opened(t *testing.T, c *natsconf.Conn, key secretbox.Key) bool {
	t.Helper()
	_, err := storestate.OpenRing(t.Context(), c, key)
	if err != nil && !errors.Is(err, storestate.ErrMasterKey) {
		t.Fatal(err)
	}
	return err == nil
}

func checkOf(t *testing.T, c *natsconf.Conn) []byte {
	t.Helper()
	m, err := c.Last(t.Context(), topology.BucketStream(topology.BucketAccounts), storestate.CheckSubject())
	if err != nil {
		t.Fatal(err)
	}
	return m.Data
}

// A store belongs to the key that opens it first, until that is changed: then to both, and at last to the new
// one alone, which finds the old one in the store. Earlier builds refuse the store, with either key.
func TestMasterKeyIsChanged(t *testing.T) {
	t.Parallel()
	c := natstest.Start(t)
	old, next, stranger := secretbox.NewKey(), secretbox.NewKey(), secretbox.NewKey()
	if !opened(t, c, old) || opened(t, c, next) || !old.Checks(checkOf(t, c)) {
		t.Fatal("a new store is not its first key's")
	}
	admit(t, c, old, next)
	if !opened(t, c, old) || !opened(t, c, next) || opened(t, c, stranger) {
		t.Error("not both keys open the store, or any does")
	}
	if check := checkOf(t, c); old.Checks(check) || next.Checks(check) {
		t.Error("an earlier build opens a store whose keys it cannot read")
	}
	admit(t, c, old, next) // a repeat
	alone(t, c, next)
	alone(t, c, next)
	if opened(t, c, old) || !opened(t, c, next) {
		t.Error("the old key opens the store, or the new one does not")
	}
	_, err := storestate.OpenRing(t.Context(), c, old)
	if err == nil || !strings.Contains(err.Error(), "was changed") {
		t.Errorf("the old key is refused with: %v", err)
	}
	ring, err := storestate.OpenRing(t.Context(), c, next)
	if err != nil {
		t.Fatal(err)
	}
	if ring.Seals() != 2 || !ring.Changed() || ring.Waits() {
		t.Errorf("key %d seals", ring.Seals())
	}
	if err := storestate.ChangeRing(t.Context(), c, old, func(r *secretbox.Ring) ([]byte, error) {
		return r.Alone(time.Now())
	}); !errors.Is(err, storestate.ErrMasterKey) {
		t.Errorf("the old key changes the keys: %v", err)
	}
}

// Until the copy of the ring is written, the check is the old key's: both open the store all the same.
func TestKeysOpenTheStoreBetweenTwoWrites(t *testing.T) {
	t.Parallel()
	c := natstest.Start(t)
	old, next := secretbox.NewKey(), secretbox.NewKey()
	opened(t, c, old)
	stored, err := old.Ring().Admit(next, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	natstest.Publish(t, c, topology.BucketSubject(topology.BucketStore, "master-keys"), stored)
	if !opened(t, c, old) || !opened(t, c, next) {
		t.Error("a crash between two writes closes the store")
	}
	if r, err := storestate.OpenRing(t.Context(), c, old); err != nil || r.Newest() {
		t.Errorf("the old key's process does not know that a later one opens the store: %v", err)
	}
	alone(t, c, next)
	if opened(t, c, old) || !bytes.HasPrefix(checkOf(t, c), []byte("{")) {
		t.Error("the change does not go on from there")
	}
}

// Damage to one of the two buckets loses no key: the ring is put back from its copy.
func TestRingOutlastsDamage(t *testing.T) {
	t.Parallel()
	c := natstest.Start(t)
	old, next, last := secretbox.NewKey(), secretbox.NewKey(), secretbox.NewKey()
	opened(t, c, old)
	admit(t, c, old, next)
	alone(t, c, next)
	box := func() []byte {
		t.Helper()
		ring, err := storestate.OpenRing(t.Context(), c, next)
		if err != nil {
			t.Fatal(err)
		}
		return ring.Box("use").Seal(nil, "owner")
	}()
	lose := func(bucket, subject string) {
		t.Helper()
		if err := c.Purge(t.Context(), topology.BucketStream(bucket), subject); err != nil {
			t.Fatal(err)
		}
	}
	lose(topology.BucketStore, topology.BucketSubject(topology.BucketStore, "master-keys"))
	if opened(t, c, old) || !opened(t, c, next) {
		t.Error("without the ring")
	}
	if err := storestate.RepairRing(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	lose(topology.BucketAccounts, storestate.CheckSubject())
	if !opened(t, c, next) {
		t.Error("without the copy")
	}
	if err := storestate.RepairRing(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	lose(topology.BucketStore, topology.BucketSubject(topology.BucketStore, "master-keys"))
	admit(t, c, next, last) // goes on from the copy
	ring, err := storestate.OpenRing(t.Context(), c, last)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ring.Box("use").Open(box, "owner"); err != nil {
		t.Errorf("a key was lost: %v", err)
	}
}

// A store whose key was never changed has no ring, also after it was mended. One that does not answer is no
// store of another key.
func TestUnchangedStoreHasNoRing(t *testing.T) {
	t.Parallel()
	c := natstest.Start(t)
	key := secretbox.NewKey()
	opened(t, c, key)
	if err := storestate.RepairRing(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if !key.Checks(checkOf(t, c)) || !opened(t, c, key) {
		t.Error("an earlier build does not open it any more")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := storestate.OpenRing(ctx, c, key); err == nil || errors.Is(err, storestate.ErrMasterKey) {
		t.Errorf("a store that does not answer: %v", err)
	}
}
