package accountstore_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/input"
	"verifyd/edge/account/secrets"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/topology"
)

func (h harness) account(t *testing.T, name string, owners ...account.Member) account.Account {
	t.Helper()
	a, err := h.store.CreateAccount(natstest.Patient(t), operator, name, owners...)
	if err != nil {
		t.Fatal(err)
	}
	natstest.Await(t, "the account is mirrored", func() bool { _, ok := h.mirror.Account(a.ID); return ok })
	return a
}

func (h harness) key(t *testing.T, a account.Account, o account.KeyOptions) (string, account.Key) {
	t.Helper()
	secret, k, err := h.store.CreateKey(natstest.Patient(t), operator, a.ID, o)
	if err != nil {
		t.Fatal(err)
	}
	h.known(t, secret)
	return secret, k
}

func (h harness) known(t *testing.T, secret string) {
	t.Helper()
	natstest.Await(t, "the key is known", func() bool {
		_, err := h.mirror.Lookup(secret)
		return err == nil
	})
}

// The instant of the lookup decides, without a timer or a message.
func TestKeyExpiresByItself(t *testing.T) {
	t.Parallel()
	h := start(t)
	end := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	secret, k := h.key(t, h.account(t, "a"), account.KeyOptions{Name: "nightly", ExpiresAt: end})
	for _, c := range []struct {
		at   time.Time
		want error
	}{{end.Add(-time.Millisecond), nil}, {end, account.ErrExpiredKey},
		{end.AddDate(1, 0, 0), account.ErrExpiredKey}} {
		h.at(c.at)
		p, err := h.mirror.Lookup(secret)
		if !errors.Is(err, c.want) || err == nil && p.Key.Name != "nightly" {
			t.Errorf("at %s: %v, want %v", c.at, err, c.want)
		}
		if expired, ok := errors.AsType[*account.ExpiredKeyError](err); ok &&
			(!expired.At.Equal(end) || expired.Rolled) {
			t.Errorf("at %s: %+v", c.at, expired)
		}
	}
	if _, _, err := h.store.RollKey(t.Context(), operator, k.Account, k.ID, time.Hour); !errors.Is(err,
		account.ErrKeyEnded) {
		t.Errorf("rolling an expired key: %v", err)
	}
}

func TestRollingWithGraceAndWithout(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.account(t, "a")
	old, k := h.key(t, a, account.KeyOptions{
		Name: "bot", Test: true, RateLimit: account.Rate{Count: 3, Per: time.Second}, ExpiresAt: time.Now().
			Add(90 * 24 * time.Hour),
	})
	fresh, next, err := h.store.RollKey(t.Context(), operator, a.ID, k.ID, 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	h.known(t, fresh)
	if next.Replaces != k.ID || next.Name != "bot" || !next.Test || next.RateLimit != k.RateLimit ||
		!strings.HasPrefix(fresh, secrets.TestPrefix) {
		t.Errorf("successor: %+v", next)
	}
	if life := next.ExpiresAt.Sub(next.CreatedAt); life != k.ExpiresAt.Sub(k.CreatedAt) {
		t.Errorf("the successor lives for %s", life)
	}
	natstest.Await(t, "the old key is rolled", func() bool {
		p, err := h.mirror.Lookup(old)
		return err == nil && p.Key.ReplacedBy == next.ID
	})
	h.at(time.Now().Add(25 * time.Hour))
	expired, ok := errors.AsType[*account.ExpiredKeyError](second(h.mirror.Lookup(old)))
	if !ok || !expired.Rolled {
		t.Errorf("after the grace: %+v", expired)
	}
	if _, err := h.mirror.Lookup(fresh); err != nil {
		t.Errorf("the successor after the grace: %v", err)
	}
	if _, _, err := h.store.RollKey(t.Context(), operator, a.ID, k.ID, 0); !errors.Is(err,
		account.ErrRolled) || !strings.Contains(err.Error(), next.ID) {
		t.Errorf("rolling it again: %v", err)
	}
	h.at(time.Time{})

	if _, _, err := h.store.RollKey(t.Context(), operator, a.ID, next.ID, 0); err != nil {
		t.Fatal(err)
	}
	page, err := h.store.Audit(t.Context(), a.ID, "", 1)
	if until := page.Records[0].Detail["until"]; err != nil ||
		until != page.Records[0].At.Truncate(time.Second).Format(time.RFC3339) {
		t.Errorf("the log has it end at %s: %v", until, err)
	}
	natstest.Await(t, "a key rolled without grace is revoked", func() bool {
		return errors.Is(second(h.mirror.Lookup(fresh)), account.ErrRevokedKey)
	})
}

func second(_ account.Principal, err error) error { return err }

// A grace never makes a key live longer than it would have.
func TestGraceDoesNotOutliveTheKey(t *testing.T) {
	t.Parallel()
	h := start(t)
	end := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	a := h.account(t, "a")
	_, k := h.key(t, a, account.KeyOptions{ExpiresAt: end})
	if _, _, err := h.store.RollKey(t.Context(), operator, a.ID, k.ID, 24*time.Hour); err != nil {
		t.Fatal(err)
	}
	for _, k := range h.stored(t) {
		if k.ReplacedBy != "" && !k.ExpiresAt.Equal(end) {
			t.Errorf("it ends at %s, not %s", k.ExpiresAt, end)
		}
	}
}

func (h harness) stored(t *testing.T) []account.Key {
	t.Helper()
	keys, err := h.store.Keys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// Of many rolls at once one succeeds, and no other leaves a key behind.
func TestOneRollWins(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.account(t, "a")
	_, k := h.key(t, a, account.KeyOptions{})
	edges := h.edges(t)
	wins := race(t, 8, func(i int) error {
		_, _, err := edges[i%4].RollKey(t.Context(), operator, a.ID, k.ID, time.Hour)
		return err
	}, account.ErrRolled)
	if wins != 1 {
		t.Errorf("%d rolls succeeded", wins)
	}
	if keys := h.stored(t); len(keys) != 2 {
		t.Errorf("%d keys are there", len(keys))
	}
}

// race runs do many times at once and counts the successes; every failure must be the expected one.
func race(t *testing.T, many int, do func(int) error, want error) (wins int) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	begin := make(chan struct{})
	for i := range many {
		wg.Go(func() {
			<-begin
			err := do(i)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				wins++
			case !errors.Is(err, want):
				t.Errorf("%d: %v, want %v", i, err, want)
			}
		})
	}
	close(begin)
	wg.Wait()
	return wins
}

// A key that is revoked while it is rolled is revoked, and rolling ends as if it had come later or earlier.
func TestRevokeDuringRoll(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.account(t, "a")
	edges := h.edges(t)
	for range 10 {
		secret, k := h.key(t, a, account.KeyOptions{})
		race(t, 4, func(i int) error {
			if i%2 == 0 {
				_, err := edges[i].RevokeKey(t.Context(), operator, a.ID, k.ID)
				return err
			}
			_, _, err := edges[i].RollKey(t.Context(), operator, a.ID, k.ID, time.Hour)
			if errors.Is(err, account.ErrRolled) {
				return nil
			}
			return err
		}, account.ErrKeyEnded)
		natstest.Await(t, "the key is revoked", func() bool {
			return errors.Is(second(h.mirror.Lookup(secret)), account.ErrRevokedKey)
		})
	}
}

func TestKeyRefusals(t *testing.T) {
	t.Parallel()
	h := start(t)
	a, b := h.account(t, "a"), h.account(t, "b")
	secret, k := h.key(t, a, account.KeyOptions{})
	for what, c := range map[string]struct {
		err  error
		want error
	}{
		"another account's key, revoked": {
			third(h.store.RevokeKey(t.Context(), operator, b.ID, k.ID)), account.ErrNoKey,
		},
		"another account's key, rolled": {
			fourth(h.store.RollKey(t.Context(), operator, b.ID, k.ID, 0)), account.ErrNoKey,
		},
		"any account, not the operator": {
			third(h.store.RevokeKey(t.Context(), account.Member{Network: "n", Subject: "s"}.Actor(), "",
				k.ID)), account.ErrNoKey,
		},
		"an id with a wildcard": {
			third(h.store.RevokeKey(t.Context(), operator, a.ID, "key_*")), account.ErrNoKey,
		},
		"an id that is a subject": {
			third(h.store.RevokeKey(t.Context(), operator, a.ID, "key_aaaaaaaaaaaaaaa>")), account.ErrNoKey,
		},
		"an id that nobody has": {
			third(h.store.RevokeKey(t.Context(), operator, a.ID, "key_aaaaaaaaaaaaaaaa")), account.ErrNoKey,
		},
		"an account that nobody has": {
			fourth(h.store.CreateKey(t.Context(), operator, "acc_nobody", account.KeyOptions{})),
			account.ErrNoAccount,
		},
		"an account with a wildcard": {
			fourth(h.store.CreateKey(t.Context(), operator, "acc_*", account.KeyOptions{})),
			account.ErrNoAccount,
		},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", what, c.err, c.want)
		}
	}
	for field, err := range map[string]error{
		"name": fourth(h.store.CreateKey(t.Context(), operator, a.ID, account.KeyOptions{
			Name: strings.Repeat("x", 65),
		})),
		"expires_at": fourth(h.store.CreateKey(t.Context(), operator, a.ID, account.KeyOptions{
			ExpiresAt: time.Now().Add(-time.Second),
		})),
		"grace": fourth(h.store.RollKey(t.Context(), operator, a.ID, k.ID, -time.Second)),
		"quota": h.store.SetQuota(t.Context(), operator, a.ID, -1),
	} {
		if input, ok := errors.AsType[*input.Error](err); !ok || input.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, _, err := h.store.RollKey(t.Context(), operator, a.ID, k.ID, account.MaxGrace+1); err == nil {
		t.Error("a grace beyond the most was taken")
	}
	if _, err := h.mirror.Lookup(secret); err != nil {
		t.Errorf("the key after all refusals: %v", err)
	}
}

func third(_ account.Key, err error) error            { return err }
func fourth(_ string, _ account.Key, err error) error { return err }

// A rolled key whose earlier record comes back, from an old replica, does not get its time back.
func TestRolledKeyCannotComeBack(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.account(t, "a")
	secret, k := h.key(t, a, account.KeyOptions{})
	kv, err := h.conn.JS.KeyValue(t.Context(), topology.BucketKeys)
	if err != nil {
		t.Fatal(err)
	}
	before := natstest.OnlyEntry(t, kv)
	if _, _, err := h.store.RollKey(t.Context(), operator, a.ID, k.ID, time.Hour); err != nil {
		t.Fatal(err)
	}
	natstest.Await(t, "rolled", func() bool {
		p, err := h.mirror.Lookup(secret)
		return err == nil && p.Key.ReplacedBy != ""
	})
	natstest.Publish(t, h.conn, topology.BucketSubject(topology.BucketKeys, before.Key()), before.Value())
	h.account(t, "marker") // seen after the put, so the put was seen
	h.at(time.Now().Add(2 * time.Hour))
	if _, err := h.mirror.Lookup(secret); !errors.Is(err, account.ErrExpiredKey) {
		t.Errorf("after the old record came back: %v", err)
	}
}

func TestKeysOfAnAccountFromTheMirror(t *testing.T) {
	t.Parallel()
	h := start(t)
	a, b := h.account(t, "a"), h.account(t, "b")
	_, first := h.key(t, a, account.KeyOptions{Name: "first"})
	h.key(t, b, account.KeyOptions{})
	_, last := h.key(t, a, account.KeyOptions{Name: "last"})
	keys := h.mirror.Keys(a.ID)
	if len(keys) != 2 || keys[0].ID != first.ID || keys[1].ID != last.ID {
		t.Errorf("keys = %+v", keys)
	}
}
