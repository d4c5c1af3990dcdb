package api

import (
	"net/http"
	"reflect"
	"testing"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/signing"
	"verifyd/edge/problem"
	"verifyd/edge/web"
	"verifyd/natsconf/secretbox"
)

func (s *service) signingKeys(t *testing.T, key string) answer {
	t.Helper()
	return s.do(t, http.MethodGet, pathSigning, "", "Authorization", "Bearer "+key)
}

func TestSigningKeysFollowTheSecrets(t *testing.T) {
	t.Parallel()
	keys, ring := signing.New(secretbox.NewKey()), newKeyring()
	s := newService(t, func(c *Config) { c.Signing, c.Keys = keys, ring })
	now := s.clock.now()
	a := account.Account{ID: acme.ID, Secrets: []account.Secret{
		{Value: "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD", CreatedAt: now.Add(-time.Hour)},
		{Value: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", CreatedAt: now.AddDate(0, -1, 0),
			ExpiresAt: now.Add(time.Hour)},
	}}
	who := ring[acmeKey]
	who.Account = a
	ring[acmeKey] = who
	public, until := keys.Public(a, now), web.Timestamp(now.Add(time.Hour))
	want := signingKeysDoc{[]signingKeyDoc{
		{PublicKey: public[0].Value, From: web.Timestamp(now.Add(-time.Hour))},
		{PublicKey: public[1].Value, From: web.Timestamp(now.AddDate(0, -1, 0)), Until: &until},
	}}
	if got := parse[signingKeysDoc](t, s.signingKeys(t, acmeKey), http.StatusOK); !reflect.DeepEqual(got,
		want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	s.clock.advance(time.Hour)
	want.SigningKeys = want.SigningKeys[:1]
	if got := parse[signingKeysDoc](t, s.signingKeys(t, acmeKey), http.StatusOK); !reflect.DeepEqual(got,
		want) {
		t.Errorf("after the overlap %+v, want %+v", got, want)
	}
	// another account's key reveals nothing of these
	if got := parse[signingKeysDoc](t, s.signingKeys(t, otherKey), http.StatusOK); len(got.SigningKeys) != 0 {
		t.Errorf("another account's key: %+v", got)
	}
	wantProblem(t, s.signingKeys(t, revokedKey), problem.CodeKeyInvalid)
}
