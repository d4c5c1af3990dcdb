package config

import (
	"crypto/x509"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"verifyd/cmd/verifyd/flags"
	"verifyd/natsconf/certificate"
	"verifyd/sessions"
	"verifyd/sessions/proof"
)

// Policy reads a policy of callbacks, for the flag of that name.
func Policy(f *Faults, flag, s string) sessions.Policy {
	p := sessions.Policy(s)
	if p != sessions.PolicyOnce && p != sessions.PolicyAtLeastOnce {
		f.Add(flag, fmt.Sprintf("%q is not a policy", s), "use once or at-least-once")
	}
	return p
}

// level checks the level that sessions require; empty is the default.
func level(f *Faults, flag, s string) proof.Level {
	l := proof.Level(s).Or(proof.Link)
	if !l.Known() {
		f.Add(flag, fmt.Sprintf("%q is not a binding", s), "use link, code or account")
	}
	return l
}

// Address checks an address to listen on, for the flag of that name.
func Address(f *Faults, flag, s string) string {
	host, port, err := net.SplitHostPort(s)
	if n, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil || n > 65535 ||
		strings.ContainsAny(host, "/ ") {
		f.Add(flag, fmt.Sprintf("%q is not host:port", s),
			"for example 127.0.0.1:8080, or :8080 for every interface")
	}
	return s
}

func prefixes(f *Faults, flag string, texts []string) []netip.Prefix {
	var ps []netip.Prefix
	for _, text := range texts {
		p, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			f.Add(flag, fmt.Sprintf("%q is not a CIDR", text), "for example 10.0.0.0/8 or 2001:db8::/32")
			continue
		}
		ps = append(ps, p.Masked())
	}
	return ps
}

// Roots returns the system's certificate authorities and those of a file; nil when no file is named.
func Roots(f *Faults, flag, path string) *x509.CertPool {
	if path == "" {
		return nil
	}
	pem, err := os.ReadFile(path) //nolint:gosec // the operator's own setting
	if err != nil {
		f.Add(flag, "the file cannot be read: "+Plain(err), "give the path of a PEM file")
		return nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool() // a machine without authorities of its own
	}
	if !pool.AppendCertsFromPEM(pem) {
		f.Add(flag, fmt.Sprintf("%s holds no certificate", path),
			"a PEM file begins with -----BEGIN CERTIFICATE-----")
	}
	return pool
}

// certificates returns the certificates in files of roots, by the flags that name these. What cannot be read
// is left out: Roots reports it.
func certificates(files map[string]string) (all []certificate.Certificate) {
	for _, flag := range slices.Sorted(maps.Keys(files)) {
		text, _ := os.ReadFile(files[flag])
		if c, ok := certificate.InFile(flags.VariableOf(flag), text); ok {
			all = append(all, c)
		}
	}
	return all
}
