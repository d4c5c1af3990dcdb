package signing_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"slices"
	"strings"
	"testing"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/signing"
	"verifyd/natsconf/secretbox"
)

const (
	fresh = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	old   = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
)

var began = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

func rotating() account.Account {
	return account.Account{ID: "acc_harbor", Secrets: []account.Secret{
		{Value: fresh, CreatedAt: began.Add(time.Hour)},
		{Value: old, CreatedAt: began, ExpiresAt: began.Add(2 * time.Hour)},
	}}
}

func TestPairsFollowTheSecrets(t *testing.T) {
	key := secretbox.NewKey()
	keys, a := signing.New(key), rotating()
	secrets, public := keys.Secrets(a, began.Add(time.Hour)), keys.Public(a, began.Add(time.Hour))
	if len(secrets) != 4 || !slices.Equal(secrets[:2], []string{fresh, old}) || len(public) != 2 {
		t.Fatalf("%d secrets, public keys %+v", len(secrets), public)
	}
	for i, p := range public {
		text, ok := strings.CutPrefix(secrets[2+i], signing.PrivatePrefix)
		seed, err := base64.StdEncoding.DecodeString(text)
		if !ok || err != nil || len(seed) != ed25519.SeedSize {
			t.Fatalf("private key %d is not of its form: %v", i, err)
		}
		pair := ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
		if p.Value != signing.PublicPrefix+base64.StdEncoding.EncodeToString(pair) ||
			!p.From.Equal(a.Secrets[i].CreatedAt) || !p.Until.Equal(a.Secrets[i].ExpiresAt) {
			t.Errorf("public key %d: %+v", i, p)
		}
	}
	// another process, with a copy of the record
	if again := signing.New(key).Public(rotating(), began.Add(time.Hour)); !slices.Equal(again, public) {
		t.Errorf("%+v, then %+v", public, again)
	}
	if after := keys.Public(a, began.Add(2*time.Hour)); !slices.Equal(after, public[:1]) {
		t.Errorf("after the overlap: %+v", after)
	}
}

// A pair is of one store, one account and one secret. A holder of the secret but not of the master key has
// another.
func TestPairsDiffer(t *testing.T) {
	key := secretbox.NewKey()
	seen := map[string]string{}
	for name, of := range map[string]struct {
		key        secretbox.Key
		id, secret string
	}{
		"this one":             {key, "acc_harbor", fresh},
		"another master key":   {secretbox.NewKey(), "acc_harbor", fresh},
		"another account":      {key, "acc_pier", fresh},
		"another secret":       {key, "acc_harbor", old},
		"no master key at all": {secretbox.Key{}, "acc_harbor", fresh},
	} {
		a := account.Account{ID: of.id, Secrets: []account.Secret{{Value: of.secret}}}
		value := signing.New(of.key).Public(a, began)[0].Value
		if other, is := seen[value]; is {
			t.Errorf("%s has the pair of %s", name, other)
		}
		seen[value] = name
	}
}

// The pair of a store is the same in every build: receivers hold its public key.
func TestDerivationStays(t *testing.T) {
	key := secretbox.Key([]byte("0123456789abcdef0123456789abcdef"))
	a := account.Account{ID: "acc_harbor", Secrets: []account.Secret{{Value: fresh}}}
	const want = "whpk_H7A3K7OnpkWm82sHezjrHSWfPjc2qFHaACiKQhPN80c=" // computed with another HKDF and ed25519
	if got := signing.New(key).Public(a, began)[0].Value; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func BenchmarkSecrets(b *testing.B) {
	keys, a := signing.New(secretbox.NewKey()), account.Account{
		ID: "acc_harbor", Secrets: []account.Secret{{Value: fresh}},
	}
	b.ReportAllocs()
	for b.Loop() {
		keys.Secrets(a, began)
	}
}
