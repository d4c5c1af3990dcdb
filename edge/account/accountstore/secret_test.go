package accountstore_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/account/input"
	"verifyd/edge/account/record"
	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/storestate"
	"verifyd/natsconf/topology"
	"verifyd/sessions/urlpolicy"
)

func TestRotationHasAnOverlap(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.account(t, "a")
	first := a.Secrets[0].Value
	rotated, err := h.store.RotateSecret(t.Context(), operator, a.ID, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	fresh, end := rotated.Secrets[0].Value, rotated.Secrets[1].ExpiresAt
	signs := func(want ...string) func() bool {
		return func() bool {
			got, ok := h.mirror.SigningSecrets(a.ID)
			return ok && len(got) == 2*len(want) && slices.Equal(got[:len(want)], want)
		}
	}
	natstest.Await(t, "both sign", signs(fresh, first))
	h.at(end.Add(-time.Millisecond))
	if !signs(fresh, first)() {
		t.Error("the old secret was not given to the end of the overlap")
	}
	public := h.store.PublicKeys(rotated)
	if len(public) != 2 || public[0].Value == public[1].Value || !public[0].Until.IsZero() ||
		!public[1].Until.Equal(end) || public[1].Value != h.store.PublicKeys(a)[0].Value {
		t.Errorf("the public keys of the overlap: %+v", public)
	}
	if err := err2(h.store.RotateSecret(t.Context(), operator, a.ID, time.Hour)); !errors.Is(err,
		account.ErrRotating) {
		t.Errorf("a rotation within a rotation: %v", err)
	}
	h.at(end)
	if !signs(fresh)() {
		t.Error("the old secret is given after the overlap")
	}
	if public := h.store.PublicKeys(rotated); len(public) != 1 {
		t.Errorf("%d public keys after the overlap", len(public))
	}
	if err := err2(h.store.EndRotation(t.Context(), operator, a.ID)); !errors.Is(err,
		account.ErrNotRotating) {
		t.Errorf("ending what has ended: %v", err)
	}
	again, err := h.store.RotateSecret(t.Context(), operator, a.ID, time.Hour)
	if err != nil || len(again.Secrets) != 2 || again.Secrets[1].Value != fresh {
		t.Errorf("the next rotation: %d secrets, %v", len(again.Secrets), err)
	}
	if _, err := h.store.EndRotation(t.Context(), operator, a.ID); err != nil {
		t.Fatal(err)
	}
	natstest.Await(t, "the newest alone signs", signs(again.Secrets[0].Value))
	none, err := h.store.RotateSecret(t.Context(), operator, a.ID, 0)
	if err != nil || len(none.Secrets) != 1 {
		t.Errorf("a rotation without overlap: %d secrets, %v", len(none.Secrets), err)
	}
}

func TestOneRotationWins(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.account(t, "a")
	edges := h.edges(t)
	wins := race(t, 8, func(i int) error {
		return err2(edges[i%4].RotateSecret(t.Context(), operator, a.ID, time.Hour))
	}, account.ErrRotating)
	got, err := h.store.RevealSecrets(t.Context(), operator, a.ID)
	if err != nil || wins != 1 || len(got) != 2 || got[1].Value != a.Secrets[0].Value {
		t.Errorf("%d rotations succeeded, %d secrets sign, %v", wins, len(got), err)
	}
}

func TestSecretRefusals(t *testing.T) {
	t.Parallel()
	h := start(t)
	a := h.account(t, "a")
	for _, overlap := range []time.Duration{-1, account.MaxOverlap + 1} {
		if input, ok := errors.AsType[*input.Error](
			err2(h.store.RotateSecret(t.Context(), operator, a.ID, overlap))); !ok ||
			input.Field != "overlap" {
			t.Errorf("overlap of %s: %v", overlap, input)
		}
	}
	for what, err := range map[string]error{
		"rotate": err2(h.store.RotateSecret(t.Context(), operator, "acc_nobody", 0)),
		"end":    err2(h.store.EndRotation(t.Context(), operator, "acc_nobody")),
		"reveal": err2(h.store.RevealSecrets(t.Context(), operator, "acc_nobody")),
	} {
		if !errors.Is(err, account.ErrNoAccount) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// After the master key was changed, the secrets of all accounts, and their addresses for notices, are sealed
// under the new key, whatever one of them holds, and no version that the old key opens stays. It is no change
// of an account, and the public keys that receivers have stay.
func TestSecretsAreSealedUnderTheNewKey(t *testing.T) {
	t.Parallel()
	h := start(t)
	a, gone, broken := h.account(t, "a"), h.account(t, "gone"), h.account(t, "broken")
	notices, err := urlpolicy.ParseNamed("https://bot.example.com/notices?token=1")
	if err == nil {
		err = h.store.SetNoticeURL(t.Context(), operator, a.ID, notices)
	}
	if err == nil {
		_, err = h.store.RotateSecret(t.Context(), operator, a.ID, time.Hour)
	}
	if err == nil {
		_, err = h.store.DeleteAccount(t.Context(), operator, gone.ID, false)
	}
	if err != nil {
		t.Fatal(err)
	}
	subject := func(id string) string { return topology.BucketSubject(topology.BucketAccounts, id) }
	natstest.Publish(t, h.conn, subject(broken.ID), []byte(`{"v":`))
	before, err := h.store.Account(t.Context(), a.ID)
	if err != nil {
		t.Fatal(err)
	}
	logged := len(h.all(t, a.ID, 100))

	next := secretbox.NewKey()
	change := func(key secretbox.Key, edit func(*secretbox.Ring) ([]byte, error)) {
		t.Helper()
		if err := storestate.ChangeRing(t.Context(), h.conn, key, edit); err != nil {
			t.Fatal(err)
		}
	}
	change(h.master, func(r *secretbox.Ring) ([]byte, error) { return r.Admit(next, time.Now()) })
	change(next, func(r *secretbox.Ring) ([]byte, error) { return r.Alone(time.Now()) })
	fresh, err := accountstore.New(t.Context(), h.conn, next)
	if err != nil {
		t.Fatal(err)
	}
	old := h.master.Ring().Box(record.SecretUse)
	for range 2 { // a repeat is harmless
		if err := fresh.Reseal(t.Context()); err == nil || !strings.Contains(err.Error(), broken.ID) {
			t.Errorf("an account that cannot be read: %v", err)
		}
	}
	for _, id := range []string{a.ID, gone.ID} {
		_, data := entryOf(t, h, topology.BucketAccounts, subject(id), "")
		if _, err := record.DecodeAccount(id, data, old); !errors.Is(err, natsconf.ErrNewer) {
			t.Errorf("%s, by the old key: %v", id, err)
		}
		if n := h.versions(t, subject(id)); n != 1 {
			t.Errorf("%d versions of %s are stored", n, id)
		}
	}
	after, err := fresh.Account(t.Context(), a.ID)
	if err != nil || !reflect.DeepEqual(after, before) {
		t.Errorf("the account is %+v, before %+v: %v", after, before, err)
	}
	if !reflect.DeepEqual(fresh.PublicKeys(after), h.store.PublicKeys(before)) {
		t.Error("the public keys changed")
	}
	if log, err := fresh.Audit(t.Context(), a.ID, "", 100); err != nil || len(log.Records) != logged {
		t.Errorf("%d records in its audit log, %d before: %v", len(log.Records), logged, err)
	}
}
