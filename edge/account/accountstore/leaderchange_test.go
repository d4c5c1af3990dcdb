package accountstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"verifyd/edge/account"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/account/keymirror"
	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
)

// trioRig is a store of accounts on three servers, and a mirror with a connection of its own.
type trioRig struct {
	harness

	trio *natstest.Trio
	home string // the server that the mirror's connection is to
	seen *natsconf.Conn
}

func startTrio(t *testing.T) *trioRig {
	t.Helper()
	trio := natstest.StartTrio(t)
	h := &trioRig{trio: trio, home: trio.Names()[0]}
	h.conn, h.seen, h.master = trio.Connect(t, h.home), trio.Connect(t, h.home), secretbox.NewKey()
	natstest.Ensure(t, h.conn)
	var err error
	if h.store, err = accountstore.New(t.Context(), h.conn, h.master); err != nil {
		t.Fatal(err)
	}
	h.mirror = keymirror.New(h.seen, h.master, zerolog.Nop())
	natstest.Serve(t, h.mirror)
	<-h.mirror.Loaded()
	return h
}

// settled repeats a change until the store has acknowledged it: while a leader is elected it may be refused,
// or not answered.
func settled(t *testing.T, what string, do func(ctx context.Context) error) {
	t.Helper()
	err := natsconf.AtBoot(t.Context(), do, func(err error) bool {
		return !errors.Is(err, natsconf.ErrUnavailable) && !errors.Is(err, natsconf.ErrUncertain) &&
			!errors.Is(err, context.DeadlineExceeded)
	})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func (h *trioRig) key(t *testing.T, a account.Account) (secret string, k account.Key) {
	t.Helper()
	settled(t, "create a key", func(ctx context.Context) (err error) {
		secret, k, err = h.store.CreateKey(ctx, operator, a.ID, account.KeyOptions{})
		return err
	})
	natstest.Await(t, "the key is known", func() bool {
		_, err := h.mirror.Lookup(secret)
		return err == nil
	})
	return secret, k
}

// taken is how long a key is still accepted after its revocation was acknowledged.
type taken struct {
	whole    time.Duration // until it is known to be revoked; in doubt, no key is accepted
	accepted time.Duration // until it was accepted for the last time
	sighted  time.Duration // of it, while the mirror reported that it sees everything
}

// revoke revokes a key and measures how long it is still accepted. The mirror may be late while it reports
// that it is blind.
func (h *trioRig) revoke(t *testing.T, secret string, k account.Key) (took taken) {
	t.Helper()
	settled(t, "revoke a key", func(ctx context.Context) error {
		_, err := h.store.RevokeKey(ctx, operator, k.Account, k.ID)
		return err
	})
	acknowledged := time.Now()
	last := acknowledged
	for err := error(nil); !errors.Is(err, account.ErrRevokedKey); err = second(h.mirror.Lookup(secret)) {
		now := time.Now()
		if err == nil {
			took.accepted = now.Sub(acknowledged)
		}
		if err == nil && h.mirror.BlindSince().IsZero() {
			took.sighted += now.Sub(last)
		}
		last = now
		if took.sighted > honoured {
			t.Fatalf("a key is taken %s after it was revoked, for %s of which the mirror says that it "+
				"sees everything", now.Sub(acknowledged), took.sighted)
		}
		if now.Sub(acknowledged) > natstest.TestTimeout {
			t.Fatal("the key is taken forever")
		}
		<-time.After(time.Millisecond)
	}
	took.whole = time.Since(acknowledged)
	return took
}

// honoured is the time after its acknowledgement within which a mirror that is not blind sees a revocation.
const honoured = time.Second

// Keys are created and revoked while the leaders of their bucket and of the accounts' change continuously.
func TestKeysAcrossLeaderChanges(t *testing.T) {
	t.Parallel()
	h := startTrio(t)
	a, err := h.store.CreateAccount(t.Context(), operator, "a")
	if err != nil {
		t.Fatal(err)
	}
	changes, stop := h.trio.Unrest(t, 300*time.Millisecond,
		topology.BucketStream(topology.BucketKeys), topology.BucketStream(topology.BucketAccounts))
	var longest taken
	revoked, prompt := 0, 0 // prompt: within the time for mirrors that see, blind or not
	begun := time.Now()
	for changes() < 12 || prompt < 5 {
		if time.Since(begun) > natstest.TestTimeout {
			t.Fatalf("%d leader changes, %d of %d revocations seen in time: this test is about nothing",
				changes(), prompt, revoked)
		}
		secret, k := h.key(t, a)
		took := h.revoke(t, secret, k)
		revoked++
		if took.whole <= honoured {
			prompt++
		}
		longest.whole, longest.sighted = max(longest.whole, took.whole), max(longest.sighted, took.sighted)
	}
	stop()
	t.Logf("%d leader changes, %d of %d revocations seen in time; longest %s, %s of it not blind", changes(),
		prompt, revoked, longest.whole, longest.sighted)
}

// The server that the mirror's watch uses, which leads the bucket, vanishes, while the mirror's own
// connection, to another one, stays open. A key that is revoked as soon as the bucket has a leader again is
// refused within a second.
func TestRevocationAfterTheWatchedServerVanished(t *testing.T) {
	t.Parallel()
	h := startTrio(t)
	a, err := h.store.CreateAccount(t.Context(), operator, "a")
	if err != nil {
		t.Fatal(err)
	}
	secret, k := h.key(t, a)
	host := natstest.Leader(t, h.conn, topology.BucketStream(topology.BucketKeys))
	for host == h.home {
		host = natstest.StepDown(t, h.conn, topology.BucketStream(topology.BucketKeys))
	}
	h.trio.Kill(host)
	natstest.Leader(t, h.conn, topology.BucketStream(topology.BucketKeys))
	natstest.Leader(t, h.conn, topology.StreamAudit)
	if took := h.revoke(t, secret, k); took.accepted > honoured {
		t.Errorf("a revoked key was taken for %s", took.accepted)
	}
	if !h.seen.Connected() || h.seen.NC.Stats().Reconnects > 0 {
		t.Error("the mirror's connection was not left alone: this test is about nothing")
	}
}

// The server that leads the keys' bucket does not hear from the others any more, and answers on: they may
// have elected another one, which has been told of a revocation. No key is taken on its word.
func TestNoKeyIsTakenOnTheWordOfALonelyLeader(t *testing.T) {
	t.Parallel()
	h := startTrio(t)
	a, err := h.store.CreateAccount(t.Context(), operator, "a")
	if err != nil {
		t.Fatal(err)
	}
	secret, _ := h.key(t, a)
	bucket := topology.BucketStream(topology.BucketKeys)
	natstest.Lead(t, h.conn, bucket, h.home)
	others := h.trio.Others(h.home)
	for _, name := range others {
		h.trio.Freeze(t, name)
	}
	natstest.Await(t, "no key is known for certain", func() bool {
		return errors.Is(second(h.mirror.Lookup(secret)), account.ErrNotReady)
	})
	if leader := natstest.Leader(t, h.conn, bucket); leader != h.home {
		t.Errorf("%s leads by then: this test is about nothing", leader)
	}
	for _, name := range others {
		h.trio.Thaw(t, name)
	}
	natstest.Await(t, "the key is taken again", func() bool { return second(h.mirror.Lookup(secret)) == nil })
}
