package network_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"verifyd/edge/network"
	"verifyd/edge/network/netsettings"
)

// oddKeys are keys that providers publish beside the one that they sign with.
var oddKeys = map[string]string{
	"a curve that is not known":        `{"kty":"EC","crv":"secp256k1","kid":"odd","x":"AAEC","y":"AAEC"}`,
	"a type that is not known":         `{"kty":"AKP","alg":"ML-DSA-44","kid":"odd","pub":"AAEC"}`,
	"members missing":                  `{"kty":"RSA","kid":"odd"}`,
	"no type":                          `{"kid":"odd"}`,
	"a certificate that is none":       `{"kty":"RSA","kid":"odd","n":"AQAB","e":"AQAB","x5c":["AAEC"]}`,
	"a thumbprint of another length":   `{"kty":"RSA","kid":"odd","n":"AQAB","e":"AQAB","x5t":"AAEC"}`,
	"no base64":                        `{"kty":"EC","crv":"P-256","kid":"odd","x":"!","y":"!"}`,
	"a point that is not on the curve": `{"kty":"EC","crv":"P-256","kid":"odd","x":"AAEC","y":"AAEC"}`,
	"an empty point":                   `{"kty":"EC","crv":"P-256","kid":"odd","x":"","y":""}`,
	"a shared secret":                  `{"kty":"oct","kid":"odd","k":"AAEC"}`,
	"a member of another type":         `{"kty":1,"kid":["odd"]}`,
	"a name that is a number":          `{"kty":"RSA","kid":7,"n":"AQAB","e":"AQAB"}`,
	"no object":                        `"odd"`,
	"null":                             `null`,
	"a member twice":                   `{"kty":"RSA","kty":"EC","kid":"odd"}`,
}

// A key that cannot be read is ignored, and named; the others sign (RFC 7517 §5).
func TestOddKeysAreIgnored(t *testing.T) {
	for name, odd := range oddKeys {
		t.Run(name, func(t *testing.T) {
			s := newStandIn(t)
			good, err := json.Marshal(jose.JSONWebKey{Key: s.key.Public(), KeyID: "k1", Algorithm: "ES256"})
			if err != nil {
				t.Fatal(err)
			}
			s.jwks = func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte(`{"keys":[` + odd + "," + string(good) + `]}`))
			}
			n := s.network(t)
			if _, err := n.Redeem(t.Context(), s.attempt, s.good()); err != nil {
				t.Errorf("a sign-in beside it: %v", err)
			}
			doubts, err := n.Doubts(t.Context())
			usable := strings.Contains(name, "certificate") || strings.Contains(name, "thumbprint")
			if err != nil || !usable && len(doubts) != 1 || usable && len(doubts) != 0 {
				t.Errorf("doubts %q, %v", doubts, err)
			}
		})
	}
}

// What is odd is reported as soon as the metadata is known, and at later looks of the keeper only when it has
// changed. The provider is outside the bubble, on a real socket: no time passes until it answers.
func TestKeeperReportsDoubts(t *testing.T) {
	s := newStandIn(t)
	var offered atomic.Value
	s.metadata = func(m map[string]any) {
		m["token_endpoint_auth_methods_supported"] = []any{offered.Load()}
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var told [][]string
		k := network.NewKeeper([]*network.Network{s.network(t)}, func(_ string, doubts []string) {
			told = append(told, doubts)
		})
		ended := make(chan error, 1)
		go func() { ended <- k.Serve(ctx) }()
		for i, look := range []struct {
			offers  string
			reports int // so far
			doubts  int // in the last one
		}{
			{"private_key_jwt", 1, 1}, {"private_key_jwt", 1, 1}, {"client_secret_basic", 2, 0},
			{"client_secret_basic", 2, 0}, {"private_key_jwt", 3, 1},
		} {
			offered.Store(look.offers)
			for looks := int32(i + 1); s.discoveries.Load() < looks; {
				time.Sleep(time.Minute) // of the bubble
			}
			synctest.Wait()
			if len(told) != look.reports || len(told[len(told)-1]) != look.doubts {
				t.Errorf("after look %d, at %q, was reported: %q", i+1, look.offers, told)
			}
		}
		stop()
		<-ended
	})
}

// What is no key set is told as what it is.
func TestWhatIsNoKeySet(t *testing.T) {
	var zipped strings.Builder
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write([]byte(`{"keys":[]}`))
	_ = z.Close()
	for want, answer := range map[string]string{
		"HTML": "<!doctype html>", "gzip": zipped.String(), `"keys"`: "{}",
		"no key that can be read": `{"keys":[]}`,
	} {
		s := newStandIn(t)
		s.jwks = func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(answer)) }
		_, err := s.network(t).Redeem(t.Context(), s.attempt, s.good())
		wantFailure(t, err, "id_token", "malformed")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}

// A key that is new signs at once.
func TestNewKeyIsFetchedAtOnce(t *testing.T) {
	s := newStandIn(t)
	n := s.network(t)
	if _, err := n.Redeem(t.Context(), s.attempt, s.good()); err != nil {
		t.Fatal(err)
	}
	s.key = otherKey(t)
	s.sign = func(claims []byte) string { return signJWT(t, jose.ES256, s.key, "k2", claims) }
	s.jwks = func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: s.key.Public(), KeyID: "k2"}}})
	}
	redeemSoon(t, s, n)
	if k := s.keyFetches.Load(); k != 2 {
		t.Errorf("the keys were fetched %d times", k)
	}
}

// What a token answer does not need refuses no sign-in, whatever its form.
func TestTokenAnswersAsTheyAre(t *testing.T) {
	set := func(name string, v any) func(map[string]any) {
		return func(m map[string]any) { m[name] = v }
	}
	const asJSON = "application/json"
	for name, answer := range map[string]struct {
		kind   string
		change func(map[string]any)
	}{
		"as text":                    {"text/plain; charset=utf-8", func(map[string]any) {}},
		"without a type":             {"", func(map[string]any) {}},
		"as JavaScript":              {"text/javascript", func(map[string]any) {}},
		"a fraction of a second":     {asJSON, set("expires_in", 3599.73)},
		"an empty life":              {asJSON, set("expires_in", "")},
		"a life of another type":     {asJSON, set("expires_in", []int{1})},
		"a refresh token of a type":  {asJSON, set("refresh_token", 7)},
		"scopes as a list":           {asJSON, set("scope", []string{"openid"})},
		"an error that is null":      {asJSON, set("error", nil)},
		"a type in upper case":       {"Application/JSON", set("token_type", "BEARER")},
		"members that nobody knows":  {asJSON, set("x", map[string]any{})},
		"a description of the error": {asJSON, set("error_description", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStandIn(t)
			s.token = func(w http.ResponseWriter, _ *http.Request) {
				m := s.tokenAnswer()
				answer.change(m)
				w.Header()["Content-Type"] = nil
				if answer.kind != "" {
					w.Header().Set("Content-Type", answer.kind)
				}
				_ = json.NewEncoder(w).Encode(m)
			}
			if _, err := s.network(t).Redeem(t.Context(), s.attempt, s.good()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Each claim of an ID token that cannot be used has a cause of its own.
func TestClaimsOfAnotherTypeAreNamed(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		claim string
		value any // nil: it is missing
		want  string
	}{
		"a number for the user":    {"sub", 40123, "sub is no text"},
		"a text for the issue":     {"iat", now.Format(time.RFC3339), "iat is no number"},
		"no issue":                 {"iat", nil, "has no iat"},
		"a text for the end":       {"exp", "soon", "exp is no number"},
		"digits as text for it":    {"exp", "1893456000", "exp is no number"},
		"a list for the issuer":    {"iss", []string{"a"}, "iss is no text"},
		"a number for the client":  {"aud", 7, "aud is neither"},
		"an object for the client": {"aud", map[string]any{}, "aud is neither"},
		"a beginning without end":  {"nbf", 1e300, "nbf is no number"},
		"a text for the beginning": {"nbf", "now", "nbf is no number"},
		"a number for the nonce":   {"nonce", 7, "nonce is no text"},
		"no nonce":                 {"nonce", nil, "carries no nonce"},
		"a list for the party":     {"azp", []string{"client"}, "azp is no text"},
		"a number for the hash":    {"at_hash", 7, "at_hash is no text"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStandIn(t)
			s.claims = func(claims map[string]any) {
				if claims[c.claim] = c.value; c.value == nil {
					delete(claims, c.claim)
				}
			}
			_, err := s.network(t).Redeem(t.Context(), s.attempt, s.good())
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want %q", err, c.want)
			}
		})
	}
}

// A JWT of another kind is no ID token, though everything in it fits (RFC 8725 §3.11).
func TestOtherTypesOfTokens(t *testing.T) {
	for kind, fits := range map[string]bool{
		"JWT": true, "jwt": true, "": true, "at+jwt": false, "application/AT+JWT": false, "logout+jwt": false,
		"secevent+jwt": false,
	} {
		s := newStandIn(t)
		s.sign = func(claims []byte) string {
			o := (&jose.SignerOptions{}).WithHeader("kid", "k1")
			if kind != "" {
				o = o.WithType(jose.ContentType(kind))
			}
			signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: s.key}, o)
			if err != nil {
				t.Fatal(err)
			}
			signed, err := signer.Sign(claims)
			if err != nil {
				t.Fatal(err)
			}
			compact, err := signed.CompactSerialize()
			if err != nil {
				t.Fatal(err)
			}
			return compact
		}
		_, err := s.network(t).Redeem(t.Context(), s.attempt, s.good())
		if fits != (err == nil) || err != nil && !strings.Contains(err.Error(), kind) {
			t.Errorf("typ %q: %v", kind, err)
		}
	}
}

// The client authenticates as the provider's metadata offer, unless the settings say how; what cannot work is
// a doubt.
func TestAuthenticationIsWhatIsOffered(t *testing.T) {
	for name, c := range map[string]struct {
		offered []string
		set     string
		params  bool
		doubts  int
	}{
		"nothing is said":        {nil, "", false, 0},
		"both":                   {[]string{"client_secret_post", "client_secret_basic"}, "", false, 0},
		"only in the body":       {[]string{"client_secret_post"}, "", true, 0},
		"only in the header":     {[]string{"client_secret_basic"}, "", false, 0},
		"the settings insist":    {[]string{"client_secret_post"}, netsettings.AuthHeader, false, 1},
		"the settings insist, 2": {[]string{"client_secret_basic"}, netsettings.AuthParams, true, 1},
		"by a key":               {[]string{"private_key_jwt"}, "", false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStandIn(t)
			if c.offered != nil {
				s.metadata = func(m map[string]any) { m["token_endpoint_auth_methods_supported"] = c.offered }
			}
			n := s.network(t, func(set *netsettings.Settings, _ *network.Options) { set.AuthStyle = c.set })
			if _, err := n.Redeem(t.Context(), s.attempt, s.good()); err != nil {
				t.Fatal(err)
			}
			if inBody := s.lastForm.Load().Get("client_secret") != ""; inBody != c.params {
				t.Errorf("the secret is in the body: %t", inBody)
			}
			if doubts, err := n.Doubts(t.Context()); err != nil || len(doubts) != c.doubts {
				t.Errorf("doubts %q, %v", doubts, err)
			}
		})
	}
}

// A member of the metadata that cannot be used is named.
func TestMemberOfTheMetadataIsNamed(t *testing.T) {
	for name, value := range map[string]any{
		"jwks_uri": 7, "issuer": []string{"a"}, "id_token_signing_alg_values_supported": "ES256",
		"token_endpoint_auth_methods_supported": "none", "userinfo_endpoint": map[string]any{},
	} {
		s := newStandIn(t)
		s.metadata = func(m map[string]any) { m[name] = value }
		_, err := s.network(t).AuthURL(t.Context(), s.attempt)
		if err == nil || !strings.Contains(err.Error(), name+" in the metadata") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Error codes that providers have made up say what can be done.
func TestErrorsOfTheirOwn(t *testing.T) {
	for body, c := range map[string]struct {
		status int
		want   string
	}{
		`{"error":"bad_verification_code"}`:                     {200, "bad_verification_code (the code was used"},
		`{"error":"incorrect_client_credentials"}`:              {200, "check client_id and client_secret"},
		`{"error":"redirect_uri_mismatch"}`:                     {200, "register the redirect URI"},
		`{"status":403,"message":"invalid client secret"}`:      {403, "invalid_client (check"},
		`{"status":400,"message":"Invalid authorization code"}`: {400, "invalid_grant (the code"},
		`{"status":500,"message":"oops"}`:                       {500, "status 500"},
	} {
		s := newStandIn(t)
		s.token = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte(body))
		}
		_, err := s.network(t).Redeem(t.Context(), s.attempt, s.good())
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", body, err, c.want)
		}
	}
}

// A user who said no has declined, in whatever words; one who has forgotten a password has not.
func TestReturnsOfUsersWhoSaidNo(t *testing.T) {
	for query, declined := range map[string]bool{
		"error=access_denied":            true,
		"error=user_cancelled_authorize": true,
		"error=user_cancelled_login":     true,
		"error=consent_required":         true,
		"error=server_error":             false,
		"error=access_denied&error_description=AADB2C90118%3A+The+user+has+forgotten+their+password.": false,
	} {
		s := newStandIn(t)
		q, err := url.ParseQuery(query + "&state=" + s.attempt.State)
		if err != nil {
			t.Fatal(err)
		}
		r, err := network.ParseReturn(q)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.network(t).Redeem(t.Context(), s.attempt, r)
		if errors.Is(err, network.ErrDeclined) != declined {
			t.Errorf("%s: %v", query, err)
		}
	}
}

// The text that some providers write for true counts for kind oidc alone.
func TestVerifiedAsText(t *testing.T) {
	s := newStandIn(t)
	s.claims = func(c map[string]any) { c["email"], c["email_verified"] = "a@b.example", "true" }
	who, err := s.network(t, withClaim("email")).Redeem(t.Context(), s.attempt, s.good())
	if err != nil || who.Subject != "a@b.example" || who.Email != "a@b.example" {
		t.Errorf("%+v, %v", who, err)
	}
}
