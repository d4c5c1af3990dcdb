// Package secured runs, for tests, an external NATS server that speaks TLS, with a certificate that the test
// replaces.
package secured

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
)

// Server is such a server.
type Server struct {
	URL    string // with a user and password
	CAFile string // its authority
	Roots  *x509.CertPool

	inner *server.Server
	ca    authority
	shown atomic.Pointer[tls.Certificate]
}

// Password is in the server's URL, and to be seen nowhere else.
const Password = "hunter2"

// certificateLife is the whole lifetime of its certificates.
const certificateLife = 90 * 24 * time.Hour

// Start runs a server until the test ends. Its certificate is new.
func Start(tb testing.TB) *Server {
	tb.Helper()
	s := &Server{ca: newAuthority(tb), Roots: x509.NewCertPool()}
	s.Roots.AddCert(s.ca.cert)
	s.CAFile = filepath.Join(tb.TempDir(), "ca.pem")
	if err := os.WriteFile(s.CAFile,
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.ca.cert.Raw}), 0o600); err != nil {
		tb.Fatal(err)
	}
	s.Renew(tb, certificateLife)
	ns, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, JetStream: true,
		StoreDir: tb.TempDir(), Username: "verifyd", Password: Password, TLSTimeout: 2,
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS12,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				return s.shown.Load(), nil
			},
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	ns.Start()
	tb.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	if !ns.ReadyForConnections(natstest.TestTimeout) {
		tb.Fatal("the server does not start")
	}
	s.inner = ns
	s.URL = (&url.URL{
		Scheme: "tls", User: url.UserPassword("verifyd", Password), Host: s.Address(),
	}).String()
	return s
}

// Address returns its host and port.
func (s *Server) Address() string { return s.inner.Addr().String() }

// Renew replaces its certificate by one for 90 days of which this much is left. Connections that stand are
// not affected.
func (s *Server) Renew(tb testing.TB, left time.Duration) (expires time.Time) {
	tb.Helper()
	c := s.ca.sign(tb, left)
	s.shown.Store(&c)
	return c.Leaf.NotAfter
}

// Disconnect ends a connection to it.
func (s *Server) Disconnect(tb testing.TB, c *natsconf.Conn) {
	tb.Helper()
	id, err := c.NC.GetClientID()
	if err == nil {
		err = s.inner.DisconnectClientByID(id)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// authority signs certificates of 127.0.0.1.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(tb testing.TB) authority {
	tb.Helper()
	a := authority{key: newKey(tb)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(10, 0, 0),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true,
	}
	a.cert = signed(tb, template, template, a.key, a.key)
	return a
}

func (a authority) sign(tb testing.TB, left time.Duration) tls.Certificate {
	tb.Helper()
	key, expires := newKey(tb), time.Now().Add(left)
	leaf := signed(tb, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "nats"},
		NotBefore: expires.Add(-certificateLife), NotAfter: expires, KeyUsage: x509.KeyUsageDigitalSignature,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}, a.cert, key, a.key)
	return tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

// signed returns the certificate of key that the key by has signed.
func signed(tb testing.TB, template, parent *x509.Certificate, key, by *ecdsa.PrivateKey) *x509.Certificate {
	tb.Helper()
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		tb.Fatal(err)
	}
	c, err := x509.ParseCertificate(raw)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}
