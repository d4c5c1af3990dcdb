// Package certificate tells until when the certificates are valid that a process has read from its files, or
// that a server has shown to it: a NATS server, an identity network, a receiver.
package certificate

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Certificate is the one of a file, or of a server's chain, that expires first.
type Certificate struct {
	Of      string    `json:"of"` // the setting that names the file, or the server
	From    time.Time `json:"from"`
	Expires time.Time `json:"expires"`
	Foreign bool      `json:"foreign,omitempty"` // of an integrator's receiver: its owner renews it
}

// A certificate should have been renewed when a sixth of its lifetime is left, or 14 days: that is half of
// what is left when certificates for 90 days are renewed, at two thirds of their lifetime, and those for
// years are renewed by a person. docs/monitoring/alerts.yml has the same figures.
const (
	dueShare = 6
	dueLeft  = 14 * 24 * time.Hour
)

// Due reports whether it should have been renewed.
func (c Certificate) Due(now time.Time) bool {
	return c.Expires.Sub(now) < min(c.lifetime()/dueShare, dueLeft)
}

// Expired reports whether it is accepted no more.
func (c Certificate) Expired(now time.Time) bool { return !now.Before(c.Expires) }

// Text describes it in a line.
func (c Certificate) Text(now time.Time) string {
	at, left := c.Expires.UTC().Format(time.RFC3339), c.Expires.Sub(now)
	if c.Expired(now) {
		return fmt.Sprintf("%s: expired at %s", c.Of, at)
	}
	if left < 48*time.Hour {
		return fmt.Sprintf("%s: expires at %s, in %s", c.Of, at, left.Truncate(time.Minute))
	}
	return fmt.Sprintf("%s: expires at %s, in %d days", c.Of, at, int(left.Hours()/24))
}

func (c Certificate) lifetime() time.Duration { return c.Expires.Sub(c.From) }

// InFile returns the certificate in a PEM file that expires first. If several have the same subject, the last
// of them to expire has replaced the others.
func InFile(of string, text []byte) (Certificate, bool) {
	newest := map[string]*x509.Certificate{}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		found, err := x509.ParseCertificate(block.Bytes)
		if block.Type != "CERTIFICATE" || err != nil {
			continue
		}
		subject := string(found.RawSubject)
		if known := newest[subject]; known == nil || known.NotAfter.Before(found.NotAfter) {
			newest[subject] = found
		}
	}
	var all []*x509.Certificate
	for _, c := range newest {
		all = append(all, c)
	}
	return first(of, all)
}

// Shown returns the certificate of a server's chain that expires first. If several chains lead to an
// accepted root, the one that is valid longest counts. If the server was refused because a certificate has
// expired, it is that one.
func Shown(of string, state tls.ConnectionState, refusal error) (c Certificate, ok bool) {
	if invalid, is := errors.AsType[x509.CertificateInvalidError](refusal); is &&
		invalid.Reason == x509.Expired {
		return first(of, []*x509.Certificate{invalid.Cert})
	}
	for _, chain := range state.VerifiedChains {
		if f, is := first(of, chain); is && f.Expires.After(c.Expires) {
			c, ok = f, true
		}
	}
	return c, ok
}

func first(of string, all []*x509.Certificate) (Certificate, bool) {
	if len(all) == 0 {
		return Certificate{}, false
	}
	c := slices.MinFunc(all, func(a, b *x509.Certificate) int {
		if by := a.NotAfter.Compare(b.NotAfter); by != 0 {
			return by
		}
		return bytes.Compare(a.Raw, b.Raw)
	})
	return Certificate{Of: of, From: c.NotBefore, Expires: c.NotAfter}, true
}

// Measure shows the certificates that list returns, in a registry, but for receivers': accounts choose their
// hosts, and how many there are.
func Measure(r prometheus.Registerer, list func() []Certificate) { r.MustRegister(collector(list)) }

type collector func() []Certificate

var (
	expiry = prometheus.NewDesc("verifyd_certificate_expiry_timestamp_seconds",
		"When a certificate expires, in Unix time, by the setting that names its file, or the server "+
			"that showed it.", []string{"certificate"}, nil)
	lifetime = prometheus.NewDesc("verifyd_certificate_lifetime_seconds",
		"For how long a certificate is valid in all.", []string{"certificate"}, nil)
)

// Describe is part of prometheus.Collector.
func (collector) Describe(to chan<- *prometheus.Desc) { to <- expiry; to <- lifetime }

// Collect is part of prometheus.Collector.
func (list collector) Collect(to chan<- prometheus.Metric) {
	for _, c := range list() {
		if c.Foreign {
			continue
		}
		to <- prometheus.MustNewConstMetric(expiry, prometheus.GaugeValue, float64(c.Expires.Unix()), c.Of)
		to <- prometheus.MustNewConstMetric(lifetime, prometheus.GaugeValue, c.lifetime().Seconds(), c.Of)
	}
}
