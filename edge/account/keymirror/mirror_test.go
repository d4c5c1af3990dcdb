package keymirror_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/account/keymirror"
	"verifyd/edge/account/secrets"
	"verifyd/natsconf"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/natstest/virtual"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/storestate"
	"verifyd/natsconf/topology"
)

var operator = access.Operator("")

func TestMain(m *testing.M) { goleak.VerifyTestMain(natstest.Tests(m)) }

type rig struct {
	conn   *natsconf.Conn
	store  *accountstore.Store
	mirror *keymirror.Mirror
}

func start(t *testing.T) rig {
	t.Helper()
	conn := natstest.Start(t)
	key := secretbox.NewKey()
	store, err := accountstore.New(t.Context(), conn, key)
	if err != nil {
		t.Fatal(err)
	}
	mirror := keymirror.New(conn, key, zerolog.Nop())
	natstest.Serve(t, mirror)
	return rig{conn, store, mirror}
}

// A key that an old replica brings back to life stays revoked, also across a fresh watch.
func TestRevokedKeyCannotComeBack(t *testing.T) {
	t.Parallel()
	h := start(t)
	a, _ := h.store.EnsureAccount(t.Context(), operator, "a")
	secret, k, err := h.store.CreateKey(t.Context(), operator, a.ID, account.KeyOptions{Test: true})
	if err != nil {
		t.Fatal(err)
	}
	kv, err := h.conn.JS.KeyValue(t.Context(), topology.BucketKeys)
	if err != nil {
		t.Fatal(err)
	}
	valid := natstest.OnlyEntry(t, kv)
	if _, err := h.store.RevokeKey(t.Context(), operator, "", k.ID); err != nil {
		t.Fatal(err)
	}
	natstest.Await(t, "revoked", func() bool {
		_, err := h.mirror.Lookup(secret)
		return errors.Is(err, account.ErrRevokedKey)
	})
	natstest.Publish(t, h.conn, topology.BucketSubject(topology.BucketKeys, valid.Key()), valid.Value())
	// seen after the put, so the put was seen
	marker, err := h.store.EnsureAccount(t.Context(), operator, "marker")
	if err != nil {
		t.Fatal(err)
	}
	natstest.Await(t, "the marker is seen", func() bool { _, ok := h.mirror.Account(marker.ID); return ok })
	if _, err := h.mirror.Lookup(secret); !errors.Is(err, account.ErrRevokedKey) {
		t.Errorf("after the old record came back: %v, want ErrRevokedKey", err)
	}
}

// While the store does not answer, a key that is not known may have been made: it is not refused as unknown.
func TestUnknownKeyWhileTheStoreIsSilent(t *testing.T) {
	t.Parallel()
	virtual.Bubble(t, unknownKeyWhileTheStoreIsSilent)
}

func unknownKeyWhileTheStoreIsSilent(t *testing.T) {
	var silent atomic.Bool
	broker := virtual.NewBroker(t)
	conn, key := broker.Connect(t, nil), secretbox.NewKey()
	natstest.Ensure(t, conn)
	store, err := accountstore.New(t.Context(), conn, key)
	if err != nil {
		t.Fatal(err)
	}
	mirror := keymirror.New(broker.Connect(t, func() virtual.Pass {
		return func(bool, []byte) bool { return !silent.Load() }
	}), key, zerolog.Nop())
	natstest.Serve(t, mirror)
	defer silent.Store(false)
	a, _ := store.EnsureAccount(t.Context(), operator, "a")
	made := func() string {
		secret, _, err := store.CreateKey(t.Context(), operator, a.ID, account.KeyOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return secret
	}
	is := func(secret string, want error) {
		t.Helper()
		natstest.Await(t, "the key is looked up", func() bool {
			_, err := mirror.Lookup(secret)
			return errors.Is(err, want)
		})
	}
	known, stranger := made(), secrets.NewKey(false)
	is(known, nil)
	is(stranger, account.ErrUnknownKey)
	silent.Store(true)
	is(stranger, natsconf.ErrUnavailable)
	later := made()
	for secret, want := range map[string]error{known: nil, later: natsconf.ErrUnavailable} {
		if _, err := mirror.Lookup(secret); !errors.Is(err, want) {
			t.Errorf("of a silent store: %v, want %v", err, want)
		}
	}
	silent.Store(false)
	is(later, nil)
	is(stranger, account.ErrUnknownKey)
}

// A watch that is closed before it was read completely ends its goroutine (goleak checks that).
func TestManyKeysAreMirroredAndLeftInTheMiddle(t *testing.T) {
	t.Parallel()
	h := start(t)
	a, _ := h.store.EnsureAccount(t.Context(), operator, "a")
	var wg sync.WaitGroup
	secrets := make([]string, 600)
	patient := natstest.Patient(t)
	for i := range secrets {
		wg.Go(func() {
			secret, _, err := h.store.CreateKey(patient, operator, a.ID, account.KeyOptions{})
			if err != nil {
				t.Error(err)
			}
			secrets[i] = secret
		})
	}
	wg.Wait()
	// of another master key: every account is damaged to it
	mirror := keymirror.New(h.conn, secretbox.NewKey(), zerolog.Nop())
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = mirror.Serve(ctx) }()
		cancel()
		<-done
	}
	natstest.Await(t, "all keys are known", func() bool {
		for _, s := range secrets {
			if _, err := h.mirror.Lookup(s); err != nil {
				return false
			}
		}
		return true
	})
	if keys, err := h.store.Keys(t.Context()); err != nil || len(keys) != len(secrets) {
		t.Errorf("%d keys listed, %v", len(keys), err)
	}
}

// A damaged entry locks out its owner, nobody else.
func TestDamagedEntryDoesNotAffectOthers(t *testing.T) {
	t.Parallel()
	h := start(t)
	for name, value := range map[string]string{
		"nothex": "{}", strings.Repeat("ab", 32): "not json", strings.Repeat("cd", 32): `{"v":99}`,
	} {
		natstest.Publish(t, h.conn, topology.BucketSubject(topology.BucketKeys, name), []byte(value))
	}
	a, _ := h.store.EnsureAccount(t.Context(), operator, "a")
	secret, _, err := h.store.CreateKey(t.Context(), operator, a.ID, account.KeyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	natstest.Await(t, "the good key is known", func() bool {
		_, err := h.mirror.Lookup(secret)
		return err == nil
	})
}

var _ interface { // what the edge and the dispatcher ask of the mirror
	Lookup(secret string) (account.Principal, error)
	SigningSecrets(id string) ([]string, bool)
} = (*keymirror.Mirror)(nil)

func BenchmarkLookup(b *testing.B) {
	conn := natstest.Start(b)
	key := secretbox.NewKey()
	store, err := accountstore.New(b.Context(), conn, key)
	if err != nil {
		b.Fatal(err)
	}
	a, _ := store.EnsureAccount(b.Context(), operator, "a")
	secret, _, err := store.CreateKey(b.Context(), operator, a.ID, account.KeyOptions{})
	if err != nil {
		b.Fatal(err)
	}
	mirror := keymirror.New(conn, key, zerolog.Nop())
	natstest.Serve(b, mirror)
	for {
		if _, err := mirror.Lookup(secret); err == nil {
			break
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := mirror.Lookup(secret); err != nil {
			b.Fatal(err)
		}
	}
}

// A restarted server has forgotten every watch: a revocation right after it is still seen.
func TestRevocationIsSeenAfterTheServerRestarted(t *testing.T) {
	e, conn, stop := natstest.StartServer(t, embedded.Options{DataDir: t.TempDir()})
	key := secretbox.NewKey()
	store, err := accountstore.New(t.Context(), conn, key)
	if err != nil {
		t.Fatal(err)
	}
	mirror := keymirror.New(conn, key, zerolog.Nop())
	natstest.Serve(t, mirror)
	a, _ := store.EnsureAccount(t.Context(), operator, "a")
	secret, k, err := store.CreateKey(t.Context(), operator, a.ID, account.KeyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	natstest.Await(t, "the key is known", func() bool { _, err := mirror.Lookup(secret); return err == nil })
	back := conn.Back()
	stop()
	natstest.Serve(t, e)
	<-back
	if _, err := mirror.Lookup(secret); err != nil {
		t.Errorf("while the watch starts over: %v", err)
	}
	if _, err := store.RevokeKey(t.Context(), operator, "", k.ID); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	natstest.Await(t, "the key is revoked", func() bool {
		_, err := mirror.Lookup(secret)
		return errors.Is(err, account.ErrRevokedKey)
	})
	t.Logf("revocation seen after %s", time.Since(began))
}

// A mirror reports since when it sees no changes: a revocation may have been missed since then.
func TestMirrorReportsWhenItIsBlind(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	began := time.Now()
	m := keymirror.New(conn, secretbox.NewKey(), zerolog.Nop())
	stop := natstest.Serve(t, m)
	natstest.Receive(t, "it is loaded", m.Loaded())
	natstest.Await(t, "it sees", func() bool { return m.BlindSince().IsZero() })
	stop()
	if since := m.BlindSince(); since.Before(began) || since.After(time.Now()) { // zero is before
		t.Errorf("blind since %s after its end", since)
	}
	natstest.Serve(t, m)
	natstest.Await(t, "it sees again", func() bool { return m.BlindSince().IsZero() })
}

// Every process seals under the new master key as soon as the old one opens the store no more: its mirror
// sees that.
func TestMirrorSeesWhichKeySeals(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	old, next := secretbox.NewKey(), secretbox.NewKey()
	if _, err := accountstore.New(t.Context(), conn, old); err != nil {
		t.Fatal(err)
	}
	change := func(key secretbox.Key, edit func(*secretbox.Ring) ([]byte, error)) {
		t.Helper()
		if err := storestate.ChangeRing(t.Context(), conn, key, edit); err != nil {
			t.Fatal(err)
		}
	}
	change(old, func(r *secretbox.Ring) ([]byte, error) { return r.Admit(next, time.Now()) })
	store, err := accountstore.New(t.Context(), conn, next)
	if err != nil {
		t.Fatal(err)
	}
	mirror := keymirror.New(conn, store.Ring, zerolog.Nop())
	natstest.Serve(t, mirror)
	a, err := store.EnsureAccount(t.Context(), operator, "a")
	if err != nil {
		t.Fatal(err)
	}
	natstest.Await(t, "the account is seen", func() bool { _, ok := mirror.Account(a.ID); return ok })
	if store.Ring.Seals() != 1 {
		t.Errorf("key %d seals while both open the store", store.Ring.Seals())
	}
	change(next, func(r *secretbox.Ring) ([]byte, error) { return r.Alone(time.Now()) })
	natstest.Await(t, "the new key seals", func() bool { return store.Ring.Seals() == 2 })
}
