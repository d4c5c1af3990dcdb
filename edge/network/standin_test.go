package network_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.uber.org/goleak"

	"verifyd/edge/network"
	"verifyd/edge/network/netsettings"
	"verifyd/natsconf/natstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(natstest.Tests(m)) }

const (
	plantedCode    = "code-that-must-not-show"
	plantedSecret  = "secret-that-must-not-show"
	plantedToken   = "access-token-that-must-not-show"
	plantedSubject = "118203948571029384"
)

// standIn is a provider over real TLS that answers as its functions say; each may be replaced to misbehave.
type standIn struct {
	*httptest.Server
	key     *ecdsa.PrivateKey
	attempt network.Attempt

	handshakes   atomic.Int32
	codePosts    atomic.Int32 // how often a request with the code reached the token endpoint
	discoveries  atomic.Int32
	keyFetches   atomic.Int32
	userInfoAsks atomic.Int32
	lastForm     atomic.Pointer[url.Values]
	lastRequest  atomic.Pointer[http.Request]

	metadata func(m map[string]any)
	claims   func(c map[string]any)
	sign     func(claims []byte) string
	discover http.HandlerFunc
	token    http.HandlerFunc
	userInfo http.HandlerFunc
	jwks     http.HandlerFunc
}

func newStandIn(t *testing.T) *standIn {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s := &standIn{key: key, attempt: network.NewAttempt()}
	s.metadata, s.claims = func(map[string]any) {}, func(map[string]any) {}
	s.sign = func(claims []byte) string { return signJWT(t, jose.ES256, s.key, "k1", claims) }
	s.discover = func(w http.ResponseWriter, _ *http.Request) { answerJSON(w, s.document()) }
	s.token = func(w http.ResponseWriter, _ *http.Request) { answerJSON(w, s.tokenAnswer()) }
	s.userInfo = func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, map[string]any{
			"sub": plantedSubject, "data": []any{map[string]any{"id": 42}}, "login": "sailor",
		})
	}
	s.jwks = func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, jose.JSONWebKeySet{
			Keys: []jose.JSONWebKey{{Key: s.key.Public(), KeyID: "k1", Algorithm: "ES256", Use: "sig"}},
		})
	}
	s.Server = httptest.NewUnstartedServer(s.routes())
	s.EnableHTTP2 = true                           // detects clients that use it
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // refused certificates are part of the tests
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12, VerifyConnection: func(tls.ConnectionState) error {
		s.handshakes.Add(1)
		return nil
	}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *standIn) routes() http.Handler {
	mux := http.NewServeMux()
	counted := func(n *atomic.Int32, h *http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			n.Add(1)
			(*h)(w, r)
		}
	}
	mux.HandleFunc("GET /.well-known/openid-configuration", counted(&s.discoveries, &s.discover))
	mux.HandleFunc("GET /jwks", counted(&s.keyFetches, &s.jwks))
	mux.HandleFunc("GET /userinfo", counted(&s.userInfoAsks, &s.userInfo))
	// the token endpoint, and the target of its redirects
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		form, _ := url.ParseQuery(string(body))
		if form.Get("code") == plantedCode || r.URL.Query().Get("code") == plantedCode {
			s.codePosts.Add(1)
		}
		s.lastForm.Store(&form)
		s.lastRequest.Store(r)
		s.token(w, r)
	})
	return mux
}

func (s *standIn) document() map[string]any {
	m := map[string]any{
		"issuer":                                s.URL,
		"authorization_endpoint":                s.URL + "/authorize?tenant=1",
		"token_endpoint":                        s.URL + "/token",
		"userinfo_endpoint":                     s.URL + "/userinfo",
		"jwks_uri":                              s.URL + "/jwks",
		"id_token_signing_alg_values_supported": []string{"ES256", "HS256", "none"},
	}
	s.metadata(m)
	return m
}

func (s *standIn) tokenAnswer() map[string]any {
	now := time.Now()
	c := map[string]any{
		"iss": s.URL, "sub": plantedSubject, "aud": "client", "nonce": s.attempt.Nonce, "name": "Sailor ☸",
		"iat": now.Unix(), "exp": now.Add(time.Minute).Unix(),
	}
	s.claims(c)
	b, _ := json.Marshal(c)
	return map[string]any{"access_token": plantedToken, "token_type": "bearer", "id_token": s.sign(b)}
}

func (s *standIn) roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return pool
}

// network returns a network for this stand-in; edit may change its settings and options.
func (s *standIn) network(t *testing.T, edit ...func(*netsettings.Settings,
	*network.Options)) *network.Network {
	t.Helper()
	settings := netsettings.Settings{
		ID: "example", Name: "Example", Kind: netsettings.KindOIDC, Issuer: s.URL, ClientID: "client",
		ClientSecret: plantedSecret,
	}
	options := network.Options{BaseURL: "https://verify.example.com", RootCAs: s.roots()}
	for _, e := range edit {
		e(&settings, &options)
	}
	n, err := network.New(settings, options)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// good is the return of an honest provider.
func (s *standIn) good() network.Return {
	return network.Return{Code: plantedCode, State: s.attempt.State}
}

func asOAuth2(s *standIn) func(*netsettings.Settings, *network.Options) {
	return func(set *netsettings.Settings, _ *network.Options) {
		set.Kind, set.Issuer = netsettings.KindOAuth2, ""
		set.AuthorizationEndpoint, set.TokenEndpoint, set.UserInfoEndpoint = s.URL+"/authorize",
			s.URL+"/token", s.URL+"/userinfo"
	}
}

func withClaim(path string) func(*netsettings.Settings, *network.Options) {
	return func(set *netsettings.Settings, _ *network.Options) { set.SubjectClaim = path }
}

func within(d time.Duration) func(*netsettings.Settings, *network.Options) {
	return func(_ *netsettings.Settings, o *network.Options) { o.RequestTimeout = d }
}

func answerJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func signJWT(t *testing.T, alg jose.SignatureAlgorithm, key any, kid string, claims []byte) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: key, KeyID: kid}},
		nil)
	if err != nil {
		t.Fatal(err)
	}
	jws, err := signer.Sign(claims)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := jws.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// checkQuiet fails if an error's text holds a secret of the attempt, a URL's query or more than a line.
func (s *standIn) checkQuiet(t *testing.T, err error) {
	t.Helper()
	text := err.Error()
	secrets := []string{plantedCode, plantedSecret, plantedToken, plantedSubject, s.attempt.State,
		s.attempt.Nonce, s.attempt.Verifier,
		"eyJ", "?", "\n"}
	for _, secret := range secrets {
		if secret != "" && strings.Contains(text, secret) {
			t.Errorf("the error text holds %q: %s", secret, text)
		}
	}
	if len(text) > 400 {
		t.Errorf("the error text has %d bytes", len(text))
	}
}
