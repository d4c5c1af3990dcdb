package accountstore_test

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/nats-io/nats.go/jetstream"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/account/keymirror"
	"verifyd/edge/account/secrets"
	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
)

var operator = access.Operator("")

func TestMain(m *testing.M) { goleak.VerifyTestMain(natstest.Tests(m)) }

type harness struct {
	conn   *natsconf.Conn
	store  *accountstore.Store
	mirror *keymirror.Mirror
	master secretbox.Key
	clock  *atomic.Int64 // the clock of the store and the mirror, in Unix nanoseconds; 0: the real time
}

// edges returns four stores, like those of four edges, which do not wait for each other.
func (h harness) edges(t *testing.T) []*accountstore.Store {
	t.Helper()
	stores := []*accountstore.Store{h.store}
	for range 3 {
		s, err := accountstore.New(t.Context(), h.conn, h.master)
		if err != nil {
			t.Fatal(err)
		}
		s.Now = h.store.Now
		stores = append(stores, s)
	}
	return stores
}

// at sets the clock; the zero time resumes the real one.
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
	store, err := accountstore.New(t.Context(), conn, key)
	if err != nil {
		t.Fatal(err)
	}
	mirror := keymirror.New(conn, key, zerolog.Nop())
	clock := new(atomic.Int64)
	store.Now = func() time.Time {
		if at := clock.Load(); at != 0 {
			return time.Unix(0, at)
		}
		return time.Now()
	}
	mirror.Now = store.Now
	if _, err := mirror.Lookup("vfy_"); !errors.Is(err, secrets.ErrMalformedKey) {
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
	for _, bucket := range []string{topology.BucketAccounts, topology.BucketKeys} {
		kv, err := h.conn.JS.KeyValue(t.Context(), bucket)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		natstest.Await(t, "the record can be read", func() bool { // a replica may be behind the leader
			names, _ = kv.Keys(t.Context())
			return len(names) > 0
		})
		for _, n := range names {
			var e jetstream.KeyValueEntry
			natstest.Await(t, "every record can be read", func() bool {
				e, err = kv.Get(t.Context(), n)
				return err == nil
			})
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
	for _, name := range []string{"", " ", "a\n", strings.Repeat("x", 129), "a\x00b", "\xff"} {
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
	foreign, err := accountstore.New(t.Context(), other, secretbox.NewKey())
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
