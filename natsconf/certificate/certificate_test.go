package certificate_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"verifyd/natsconf/certificate"
)

const day = 24 * time.Hour

var now = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// made returns a certificate for 90 days of which this much is left.
func made(t *testing.T, name string, left time.Duration) *x509.Certificate {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(left - 90*day), NotAfter: now.Add(left),
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A file is as good as the first of its roots to expire, but for those that another of the same name
// replaces.
func TestFilesExpireWithTheirFirstRoot(t *testing.T) {
	t.Parallel()
	old, renewed, other := made(t, "one", -day), made(t, "one", 80*day), made(t, "two", 30*day)
	for _, c := range []struct {
		what string
		in   []*x509.Certificate
		left time.Duration // 0: none
	}{
		{"nothing", nil, 0},
		{"one", []*x509.Certificate{other}, 30 * day},
		{"two", []*x509.Certificate{renewed, other}, 30 * day},
		{"a renewed one after the old", []*x509.Certificate{old, renewed}, 80 * day},
		{"a renewed one before the old", []*x509.Certificate{renewed, old}, 80 * day},
		{"an expired one", []*x509.Certificate{old, other}, -day},
	} {
		text := []byte("a comment\n")
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("garbage")})...)
		for _, one := range c.in {
			text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: one.Raw})...)
		}
		found, ok := certificate.InFile("a", text)
		if ok != (c.left != 0) || ok && !found.Expires.Equal(now.Add(c.left)) {
			t.Errorf("%s: %v %+v, want %s left", c.what, ok, found, c.left)
		}
	}
}

// A server is accepted for as long as one of its chains is, and that is as long as all of the chain is. One
// that is refused since a certificate has expired has shown that one.
func TestServersExpireWithTheirChain(t *testing.T) {
	t.Parallel()
	leaf, root, better := made(t, "leaf", 60*day), made(t, "root", 10*day), made(t, "better", 100*day)
	expired := made(t, "expired", -day)
	refusal := fmt.Errorf("handshake: %w", &tls.CertificateVerificationError{
		Err: x509.CertificateInvalidError{Cert: expired, Reason: x509.Expired},
	})
	for _, c := range []struct {
		what    string
		chains  [][]*x509.Certificate
		refusal error
		left    time.Duration // 0: none
	}{
		{"no TLS", nil, nil, 0},
		{"a root that expires first", [][]*x509.Certificate{{leaf, root}}, nil, 10 * day},
		{"another root", [][]*x509.Certificate{{leaf, better}, {leaf, root}}, nil, 60 * day},
		{"refused", nil, refusal, -day},
		{"refused for another reason", nil, x509.UnknownAuthorityError{Cert: leaf}, 0},
		{"refused as no authority", nil, x509.CertificateInvalidError{
			Cert: leaf, Reason: x509.NotAuthorizedToSign,
		}, 0},
	} {
		found, ok := certificate.Shown("a", tls.ConnectionState{VerifiedChains: c.chains}, c.refusal)
		if ok != (c.left != 0) || ok && !found.Expires.Equal(now.Add(c.left)) {
			t.Errorf("%s: %v %+v, want %s left", c.what, ok, found, c.left)
		}
	}
}

// Certificates for hours, months and years are due while there is time to renew them, and not all the time.
func TestDue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		life, left time.Duration
		due        bool
		text       string
	}{
		{24 * time.Hour, 8 * time.Hour, false, "in 8h0m0s"},
		{24 * time.Hour, 3 * time.Hour, true, "in 3h0m0s"},
		{90 * day, 30 * day, false, "in 30 days"},
		{90 * day, 15 * day, false, "in 15 days"},
		{90 * day, 13 * day, true, "in 13 days"},
		{3650 * day, 100 * day, false, "in 100 days"},
		{3650 * day, 13 * day, true, "in 13 days"},
		{90 * day, 0, true, "expired at 2026-12-01T12:00:00Z"},
		{90 * day, -day, true, "expired at 2026-11-30T12:00:00Z"},
	} {
		one := certificate.Certificate{
			Of: "n1:4222", From: now.Add(c.left - c.life), Expires: now.Add(c.left),
		}
		if text := one.Text(now); one.Due(now) != c.due || !strings.HasPrefix(text, "n1:4222: ") ||
			!strings.HasSuffix(text, c.text) || one.Expired(now) != (c.left <= 0) {
			t.Errorf("%s of %s left: due %v, %s", c.left, c.life, one.Due(now), text)
		}
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	list := []certificate.Certificate{{Of: "a", From: time.Unix(100, 0), Expires: time.Unix(400, 0)}}
	r := prometheus.NewRegistry()
	certificate.Measure(r, func() []certificate.Certificate { return slices.Clone(list) })
	list = append(list, certificate.Certificate{Of: "b", From: time.Unix(0, 0), Expires: time.Unix(9, 0)},
		certificate.Certificate{Of: "receiver r", Foreign: true})
	if err := testutil.GatherAndCompare(r, strings.NewReader(`
# HELP verifyd_certificate_expiry_timestamp_seconds When a certificate expires, in Unix time, by the setting that names its file, or the server that showed it.
# TYPE verifyd_certificate_expiry_timestamp_seconds gauge
verifyd_certificate_expiry_timestamp_seconds{certificate="a"} 400
verifyd_certificate_expiry_timestamp_seconds{certificate="b"} 9
# HELP verifyd_certificate_lifetime_seconds For how long a certificate is valid in all.
# TYPE verifyd_certificate_lifetime_seconds gauge
verifyd_certificate_lifetime_seconds{certificate="a"} 300
verifyd_certificate_lifetime_seconds{certificate="b"} 9
`)); err != nil {
		t.Error(err)
	}
}
