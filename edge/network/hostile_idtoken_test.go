package network_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"verifyd/edge/network"
	"verifyd/edge/network/netsettings"
)

func idTokenFailures() map[string]failure {
	out := map[string]failure{}
	claims := func(name, class string, change func(c map[string]any)) {
		out["id token: "+name] = failure{
			prepare: func(_ *testing.T, s *standIn) { s.claims = change }, stage: "id_token", class: class,
			posts: 1,
		}
	}
	set := func(name string, v any) func(map[string]any) { return func(c map[string]any) { c[name] = v } }
	claims("wrong nonce", "nonce", set("nonce", network.NewAttempt().Nonce))
	claims("empty nonce", "nonce", set("nonce", ""))
	claims("no nonce", "nonce", func(c map[string]any) { delete(c, "nonce") })
	claims("wrong audience", "audience", set("aud", "other"))
	claims("no audience", "audience", func(c map[string]any) { delete(c, "aud") })
	claims("two audiences, no azp", "audience", set("aud", []string{"client", "other"}))
	claims("wrong azp", "audience", set("azp", "other"))
	claims("wrong issuer", "issuer", set("iss", "https://attacker.example.com"))
	claims("expired", "expired", set("exp", time.Now().Add(-time.Minute).Unix()))
	claims("no expiry", "expired", func(c map[string]any) { delete(c, "exp") })
	claims("issued tomorrow", "early", set("iat", time.Now().Add(24*time.Hour).Unix()))
	claims("not before tomorrow", "early", set("nbf", time.Now().Add(24*time.Hour).Unix()))
	claims("no subject", "subject", func(c map[string]any) { delete(c, "sub") })
	claims("empty subject", "subject", set("sub", ""))
	claims("subject in other case", "subject", func(c map[string]any) {
		delete(c, "sub")
		c["Sub"] = "someone"
	})
	claims("huge subject", "subject", set("sub", strings.Repeat("x", 1025)))
	claims("subject that is read in another direction", "subject", set("sub", "u-7\u202e"))
	claims("another access token's hash", "signature", set("at_hash", "AAAAAAAAAAAAAAAAAAAAAA"))

	sign := func(name, class string, sign func(t *testing.T, s *standIn, claims []byte) string) {
		out["id token: "+name] = failure{
			prepare: func(t *testing.T, s *standIn) {
				s.sign = func(b []byte) string { return sign(t, s, b) }
			},
			stage: "id_token", class: class, posts: 1,
		}
	}
	sign("missing", "malformed", func(*testing.T, *standIn, []byte) string { return "" })
	sign("garbage", "signature", func(*testing.T, *standIn, []byte) string { return "a.b.c" })
	sign("alg none", "signature", func(_ *testing.T, _ *standIn, b []byte) string {
		return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." +
			base64.RawURLEncoding.EncodeToString(b) + "."
	})
	sign("HS256 with the public key", "signature", func(t *testing.T, s *standIn, b []byte) string {
		public, err := x509.MarshalPKIXPublicKey(s.key.Public())
		if err != nil {
			t.Fatal(err)
		}
		return signJWT(t, jose.HS256, public, "k1", b)
	})
	sign("HS256 with the client secret", "signature", func(t *testing.T, _ *standIn, b []byte) string {
		return signJWT(t, jose.HS256, []byte(plantedSecret+plantedSecret), "k1", b)
	})
	sign("another key under the same kid", "signature", func(t *testing.T, _ *standIn, b []byte) string {
		return signJWT(t, jose.ES256, otherKey(t), "k1", b)
	})
	sign("unknown kid", "signature", func(t *testing.T, _ *standIn, b []byte) string {
		return signJWT(t, jose.ES256, otherKey(t), "k2", b)
	})
	sign("algorithm not announced", "signature", func(t *testing.T, _ *standIn, b []byte) string {
		key, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return signJWT(t, jose.ES384, key, "k1", b)
	})
	sign("claims altered after signing", "signature", func(t *testing.T, s *standIn, b []byte) string {
		parts := strings.Split(signJWT(t, jose.ES256, s.key, "k1", b), ".")
		parts[1] = base64.RawURLEncoding.EncodeToString(
			[]byte(strings.Replace(string(b), plantedSubject, "1", 1)))
		return strings.Join(parts, ".")
	})
	sign("repeated sub", "malformed", func(t *testing.T, s *standIn, b []byte) string {
		return signJWT(t, jose.ES256, s.key, "k1",
			[]byte(strings.Replace(string(b), "{", `{"sub":"someone",`, 1)))
	})
	sign("JSON serialization", "malformed", func(t *testing.T, s *standIn, b []byte) string {
		parts := strings.Split(signJWT(t, jose.ES256, s.key, "k1", b), ".")
		return `{"protected":"` + parts[0] + `","payload":"` + parts[1] + `","signature":"` + parts[2] + `"}`
	})
	out["id token: keys answer 503"] = failure{
		prepare: func(_ *testing.T, s *standIn) { s.jwks = answerStatus(503) }, stage: "id_token",
		class: "status", posts: 1,
	}
	out["id token: keys are huge"] = failure{
		prepare: func(_ *testing.T, s *standIn) { s.jwks = answerHuge }, stage: "id_token",
		class: "too_large", posts: 1,
	}
	out["id token: e-mail not verified"] = failure{
		edit:    func(*standIn) func(*netsettings.Settings, *network.Options) { return withClaim("email") },
		prepare: func(_ *testing.T, s *standIn) { s.claims = set("email", "a@example.com") },
		stage:   "id_token", class: "subject", posts: 1,
	}
	return out
}

func otherKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}
