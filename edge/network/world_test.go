package network_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"verifyd/edge/network"
	"verifyd/edge/network/netsettings"
)

// world replaces the hosts of the presets: one server with a certificate for all of them, to which every dial
// is redirected. The code under test uses the real addresses.
type world struct {
	t       *testing.T
	server  *httptest.Server
	roots   *x509.CertPool
	key     *ecdsa.PrivateKey // of ID tokens
	attempt network.Attempt
	answers map[string]http.HandlerFunc // by "METHOD host/path"
	// keyIssuer is the issuer of the key, as in Microsoft's key sets; empty: the key set does not name it.
	keyIssuer string

	mu    sync.Mutex
	asked []string
	forms map[string]url.Values
	basic map[string]bool
}

var presetHosts = []string{
	"discord.com", "github.com", "api.github.com", "gitlab.com", "gitlab.example.org", "accounts.google.com",
	"login.microsoftonline.com",
	"apis.roblox.com", "steamcommunity.com", "id.twitch.tv", "auth.vatsim.net",
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		t: t, key: otherKey(t), attempt: network.NewAttempt(), answers: map[string]http.HandlerFunc{},
		forms: map[string]url.Values{}, basic: map[string]bool{}, roots: x509.NewCertPool(),
	}
	certificate := certificateFor(t, presetHosts)
	w.roots.AddCert(certificate.Leaf)
	w.server = httptest.NewUnstartedServer(w)
	w.server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	w.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	w.server.StartTLS()
	t.Cleanup(w.server.Close)
	return w
}

func certificateFor(t *testing.T, hosts []string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: hosts, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func (w *world) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	name := r.Method + " " + r.Host + r.URL.Path
	_ = r.ParseForm()
	_, _, basic := r.BasicAuth()
	w.mu.Lock()
	w.asked = append(w.asked, name)
	w.forms[name], w.basic[name] = r.Form, basic
	w.mu.Unlock()
	answer, ok := w.answers[name]
	if !ok {
		http.NotFound(rw, r)
		return
	}
	if r.Method == http.MethodGet && !strings.Contains(name, "well-known") &&
		!strings.Contains(name, "keys") &&
		(r.Header.Get("Authorization") != "Bearer "+plantedToken || r.Header.Get("User-Agent") == "") {
		http.Error(rw, "no token", http.StatusUnauthorized)
		return
	}
	answer(rw, r)
}

func (w *world) times(name string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.asked {
		if a == name {
			n++
		}
	}
	return n
}

func (w *world) options() network.Options {
	return network.Options{
		BaseURL: "https://verify.example.com", RootCAs: w.roots,
		Dial: func(ctx context.Context, proto, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, proto, w.server.Listener.Addr().String())
		},
	}
}

func (w *world) network(s netsettings.Settings) *network.Network {
	w.t.Helper()
	if s.Kind != netsettings.KindSteam {
		s.ClientID, s.ClientSecret = "client", plantedSecret
	}
	n, err := network.New(s, w.options())
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

func canned(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		_, _ = io.WriteString(w, body)
	}
}

// oidc answers as an OpenID Connect provider whose metadata is the document, with an ID token of these
// claims.
func (w *world) oidc(discovery, document, claims string) {
	var m struct {
		Token  string   `json:"token_endpoint"`
		Keys   string   `json:"jwks_uri"`
		Issuer string   `json:"issuer"`
		Algs   []string `json:"id_token_signing_alg_values_supported"`
	}
	if err := json.Unmarshal([]byte(document), &m); err != nil {
		w.t.Fatal(err)
	}
	w.answers["GET "+discovery] = canned(document)
	w.answers["GET "+strings.TrimPrefix(m.Keys, "https://")] = func(rw http.ResponseWriter, _ *http.Request) {
		b, _ := json.Marshal(jose.JSONWebKey{
			Key: w.key.Public(), KeyID: "k1", Algorithm: "ES256", Use: "sig",
		})
		key := map[string]any{}
		_ = json.Unmarshal(b, &key)
		if w.keyIssuer != "" {
			key["issuer"] = w.keyIssuer
		}
		answerJSON(rw, map[string]any{"keys": []any{key}})
	}
	w.answers["POST "+strings.TrimPrefix(m.Token, "https://")] = func(rw http.ResponseWriter,
		_ *http.Request) {
		c := map[string]any{
			"iss": m.Issuer, "aud": "client", "nonce": w.attempt.Nonce, "iat": time.Now().Unix(),
			"exp": time.Now().Add(time.Minute).Unix(),
		}
		if err := json.Unmarshal([]byte(claims), &c); err != nil {
			w.t.Error(err)
		}
		b, _ := json.Marshal(c)
		answerJSON(rw, map[string]any{
			"access_token": plantedToken, "expires_in": 3600, "token_type": "bearer",
			"scope":    []string{"openid"},
			"id_token": signJWT(w.t, jose.ES256, w.key, "k1", b),
		})
	}
}
