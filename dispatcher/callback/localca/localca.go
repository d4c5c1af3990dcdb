// Package localca is a certificate authority in memory, for https receivers on this machine: the demo's and
// the tests'.
//
// The rules: its key never leaves the process, and nothing here is trusted by default. A caller that wants
// its certificates accepted hands over its Pool or PEM, through the same setting that operators use for their
// own authority.
package localca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// lifetime is how long the authority and, unless said otherwise, its certificates are valid. A demo may run
// for days.
const lifetime = 30 * 24 * time.Hour

// clockSkew lets certificates be valid at once on a machine whose clock is behind.
const clockSkew = time.Hour

// Authority signs certificates. It is safe for concurrent use.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes an authority with a key of its own.
func New() (*Authority, error) {
	now := time.Now()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "verifyd local authority"},
		// so that certificates from the past can be made, to be refused
		NotBefore:             now.Add(-lifetime),
		NotAfter:              now.Add(lifetime),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	a := new(Authority)
	der, key, err := a.sign(template)
	if err != nil {
		return nil, fmt.Errorf("make authority: %w", err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("make authority: %w", err)
	}
	a.key = key
	return a, nil
}

// Certificate says what a certificate is for.
type Certificate struct {
	Hosts               []string  // names and addresses; at least one
	NotBefore, NotAfter time.Time // zero: from now on, for 30 days
}

// Issue makes a server certificate with a key of its own.
func (a *Authority) Issue(c Certificate) (tls.Certificate, error) {
	if len(c.Hosts) == 0 {
		return tls.Certificate{}, errors.New("issue certificate: no host")
	}
	if c.NotBefore.IsZero() {
		c.NotBefore = time.Now().Add(-clockSkew)
	}
	if c.NotAfter.IsZero() {
		c.NotAfter = a.cert.NotAfter
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: c.Hosts[0]},
		NotBefore:   c.NotBefore,
		NotAfter:    c.NotAfter,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range c.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, key, err := a.sign(template)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("issue certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// Pool returns a pool of this authority alone.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// PEM returns the authority's certificate as VERIFYD_CALLBACK_CA_FILE holds it.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// sign makes a key and signs its certificate; an authority without a certificate yet signs its own.
func (a *Authority) sign(template *x509.Certificate) (der []byte, key *ecdsa.PrivateKey, err error) {
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, nil, err
	}
	// RFC 5280 §4.1.2.2: positive, at most 20 bytes.
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return nil, nil, err
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err = x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	return der, key, err
}
