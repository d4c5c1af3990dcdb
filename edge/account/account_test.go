package account_test

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
	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
)

var operator = account.Operator("")

func TestMain(m *testing.M) {
	natstest.Parallel(8)
	goleak.VerifyTestMain(m)
}

type harness struct {
	conn   *natsconf.Conn
	store  *account.Store
	mirror *account.Mirror
	master secretbox.Key
	clock  *atomic.Int64 // what the store and the mirror see, in Unix nanoseconds; 0: the time
}

// edges returns four stores, as four edges have: the turns of one do not hold up another.
func (h harness) edges(t *testing.T) []*account.Store {
	t.Helper()
	stores := []*account.Store{h.store}
	for range 3 {
		s, err := account.NewStore(t.Context(), h.conn, h.master)
		if err != nil {
			t.Fatal(err)
		}
		stores = append(stores, s)
	}
	return stores
}

// at sets the clock; the zero time lets it go on.
func (h harness) at(now time.Time) {
	if now.IsZero() {
		h.clock.Store(0)
		return
	}
	h.clock.Store(now.UnixNano())
}

func start(t *testing.T) harness {
	t.Helper()
	conn := natstest.Start(t)
	key := secretbox.NewKey()
	store, err := account.NewStore(t.Context(), conn, key)
	if err != nil {
		t.Fatal(err)
	}
	mirror := account.NewMirror(conn, key, zerolog.Nop())
	clock := new(atomic.Int64)
	store.Now = func() time.Time {
		if at := clock.Load(); at != 0 {
			return time.Unix(0, at)
		}
		return time.Now()
	}
	mirror.Now = store.Now
	if _, err := mirror.Lookup("vfy_"); !errors.Is(err, account.ErrMalformedKey) {
		t.Errorf("malformed key before the mirror is ready: %v", err)
	}
	natstest.Serve(t, mirror)
	return harness{conn, store, mirror, key, clock}
}

func TestKeyIsMirroredAndRevokedForGood(t *testing.T) {
	t.Parallel()
	h := start(t)
	a, err := h.store.EnsureAccount(t.Context(), operator, "Harbor Guild")
	if err != nil {
		t.Fatal(err)
	}
	secret, k, err := h.store.CreateKey(t.Context(), operator, a.ID, account.KeyOptions{
		RateLimit: account.Rate{Count: 5, Per: time.Second, Burst: 9},
	})
	if err != nil {
		t.Fatal(err)
	}
	natstest.Await(t, "the key is known", func() bool {
		_, err := h.mirror.Lookup(secret)
		return err == nil
	})
	p, err := h.mirror.Lookup(secret)
	if err != nil || p.Account.Name != "Harbor Guild" || p.Key.ID != k.ID || p.Key.RateLimit.Burst != 9 {
		t.Fatalf("lookup = %+v, %v", p, err)
	}

	began := time.Now()
	if _, err := h.store.RevokeKey(t.Context(), operator, "", k.ID); err != nil {
		t.Fatal(err)
	}
	natstest.Await(t, "the key is revoked", func() bool {
		_, err := h.mirror.Lookup(secret)
		return errors.Is(err, account.ErrRevokedKey)
	})
	t.Logf("revocation seen after %s", time.Since(began))
	if again, err := h.store.RevokeKey(t.Context(), operator, "", secret); err != nil ||
		again.RevokedAt.IsZero() {
		t.Errorf("revoking again, by the key itself: %+v, %v", again, err)
	}
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
	kv, err := h.conn.JS.KeyValue(t.Context(), natsconf.BucketKeys)
	if err != nil {
		t.Fatal(err)
	}
	names, err := kv.Keys(t.Context())
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	valid, err := kv.Get(t.Context(), names[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.store.RevokeKey(t.Context(), operator, "", k.ID); err != nil {
		t.Fatal(err)
	}
	natstest.Await(t, "revoked", func() bool {
		_, err := h.mirror.Lookup(secret)
		return errors.Is(err, account.ErrRevokedKey)
	})
	if _, err := kv.Put(t.Context(), names[0], valid.Value()); err != nil {
		t.Fatal(err)
	}
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

func TestManyCreationsOfOneAccountMeetInOne(t *testing.T) {
	t.Parallel()
	h := start(t)
	var wg sync.WaitGroup
	secrets := make([]string, 16)
	for i := range secrets {
		wg.Go(func() {
			a, err := h.store.EnsureAccount(t.Context(), operator, "One")
			if err != nil {
				t.Error(err)
				return
			}
			secrets[i] = a.Secrets[0].Value
		})
	}
	wg.Wait()
	for _, s := range secrets {
		if s != secrets[0] || !strings.HasPrefix(s, "whsec_") {
			t.Fatal("two creations made two signing secrets")
		}
	}
	if all, err := h.store.Accounts(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("accounts = %d, %v", len(all), err)
	}
}

func TestStoredRecordsHoldNoSecret(t *testing.T) {
	t.Parallel()
	h := start(t)
	a, _ := h.store.EnsureAccount(t.Context(), operator, "a")
	secret, _, err := h.store.CreateKey(t.Context(), operator, a.ID, account.KeyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, bucket := range []string{natsconf.BucketAccounts, natsconf.BucketKeys} {
		kv, err := h.conn.JS.KeyValue(t.Context(), bucket)
		if err != nil {
			t.Fatal(err)
		}
		names, _ := kv.Keys(t.Context())
		for _, n := range names {
			e, err := kv.Get(t.Context(), n)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range []string{
				secret, secret[4:36], a.Secrets[0].Value, strings.TrimPrefix(a.Secrets[0].Value, "whsec_"),
			} {
				if strings.Contains(string(e.Value()), s) || strings.Contains(n, s) {
					t.Errorf("%s holds a secret", bucket)
				}
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	h := start(t)
	for _, name := range []string{"", " a", "a\n", strings.Repeat("x", 129), "a\x00b", "\xff"} {
		if _, err := h.store.EnsureAccount(t.Context(), operator, name); err == nil {
			t.Errorf("account name %q accepted", name)
		}
	}
	if _, err := h.store.RevokeKey(t.Context(), operator, "", "key_nobody"); !errors.Is(err,
		account.ErrNoKey) {
		t.Errorf("revoking an unknown id: %v", err)
	}
	if _, err := h.store.AccountByName(t.Context(), "nobody"); !errors.Is(err, account.ErrNoAccount) {
		t.Errorf("unknown account: %v", err)
	}
	natstest.Await(t, "ready", h.mirror.Ready)
	other := natstest.Start(t)
	foreign, err := account.NewStore(t.Context(), other, secretbox.NewKey())
	if err != nil {
		t.Fatal(err)
	}
	a, _ := foreign.EnsureAccount(t.Context(), operator, "a")
	secret, _, _ := foreign.CreateKey(t.Context(), operator, a.ID, account.KeyOptions{})
	if _, err := h.mirror.Lookup(secret); !errors.Is(err, account.ErrUnknownKey) {
		t.Errorf("another service's key: %v", err)
	}
}

func TestQuotaIsSetAgainstARace(t *testing.T) {
	t.Parallel()
	h := start(t)
	a, _ := h.store.EnsureAccount(t.Context(), operator, "a")
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			if err := h.store.SetQuota(t.Context(), operator, a.ID, int64(i+1)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	got, err := h.store.AccountByName(t.Context(), "a")
	if err != nil || got.Quota < 1 || got.Quota > 4 || got.Secrets[0].Value != a.Secrets[0].Value {
		t.Errorf("account = %d quota, %v", got.Quota, err)
	}
	if err := h.store.SetQuota(t.Context(), operator, "acc_nobody", 1); !errors.Is(err,
		account.ErrNoAccount) {
		t.Errorf("unknown account: %v", err)
	}
}

// A watch that is left before it was read out takes its goroutine with it (goleak looks at the end).
func TestManyKeysAreMirroredAndLeftInTheMiddle(t *testing.T) {
	t.Parallel()
	h := start(t)
	a, _ := h.store.EnsureAccount(t.Context(), operator, "a")
	var wg sync.WaitGroup
	secrets := make([]string, 600)
	for i := range secrets {
		wg.Go(func() {
			secrets[i], _, _ = h.store.CreateKey(t.Context(), operator, a.ID, account.KeyOptions{})
		})
	}
	wg.Wait()
	// of another master key: every account is damaged to it
	mirror := account.NewMirror(h.conn, secretbox.NewKey(), zerolog.Nop())
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
func TestDamagedEntryHurtsNobodyElse(t *testing.T) {
	t.Parallel()
	h := start(t)
	kv, err := h.conn.JS.KeyValue(t.Context(), natsconf.BucketKeys)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"nothex": "{}", strings.Repeat("ab", 32): "not json", strings.Repeat("cd", 32): `{"v":99}`,
	} {
		if _, err := kv.Put(t.Context(), name, []byte(value)); err != nil {
			t.Fatal(err)
		}
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
} = (*account.Mirror)(nil)

func BenchmarkLookup(b *testing.B) {
	conn := natstest.Start(b)
	key := secretbox.NewKey()
	store, err := account.NewStore(b.Context(), conn, key)
	if err != nil {
		b.Fatal(err)
	}
	a, _ := store.EnsureAccount(b.Context(), operator, "a")
	secret, _, err := store.CreateKey(b.Context(), operator, a.ID, account.KeyOptions{})
	if err != nil {
		b.Fatal(err)
	}
	mirror := account.NewMirror(conn, key, zerolog.Nop())
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

// A restarted server has forgotten every watch: a revocation right after it is seen all the same.
func TestRevocationIsSeenAfterTheServerRestarted(t *testing.T) {
	e, err := natsconf.OpenEmbedded(natsconf.EmbeddedOptions{DataDir: t.TempDir(), Log: zerolog.Nop()})
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
	key := secretbox.NewKey()
	store, err := account.NewStore(t.Context(), conn, key)
	if err != nil {
		t.Fatal(err)
	}
	mirror := account.NewMirror(conn, key, zerolog.Nop())
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

// A mirror says since when it sees no changes: a revocation may have been missed since then.
func TestMirrorKnowsWhenItIsBlind(t *testing.T) {
	t.Parallel()
	conn := natstest.Start(t)
	m := account.NewMirror(conn, secretbox.NewKey(), zerolog.Nop())
	stop := natstest.Serve(t, m)
	<-m.Loaded()
	if since := m.BlindSince(); !since.IsZero() {
		t.Errorf("blind since %s while it is served", since)
	}
	stop()
	if since := m.BlindSince(); since.IsZero() || time.Since(since) > time.Minute {
		t.Errorf("blind since %s after its end", since)
	}
	natstest.Serve(t, m)
	natstest.Await(t, "it sees again", func() bool { return m.BlindSince().IsZero() })
}
