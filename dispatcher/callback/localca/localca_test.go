package localca_test

import (
	"crypto/x509"
	"testing"
	"time"

	"verifyd/dispatcher/callback/localca"
)

func TestIssuedCertificatesVerifyForTheirHostsOnly(t *testing.T) {
	authority, err := localca.New()
	if err != nil {
		t.Fatal(err)
	}
	other, err := localca.New()
	if err != nil {
		t.Fatal(err)
	}
	issued, err := authority.Issue(localca.Certificate{Hosts: []string{"hooks.example", "127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(issued.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	fromPEM := x509.NewCertPool()
	if !fromPEM.AppendCertsFromPEM(authority.PEM()) {
		t.Fatal("PEM holds no certificate")
	}
	for name, row := range map[string]struct {
		roots *x509.CertPool
		host  string
		at    time.Time
		want  bool
	}{
		"name":            {authority.Pool(), "hooks.example", time.Now(), true},
		"address":         {fromPEM, "127.0.0.1", time.Now(), true},
		"other name":      {authority.Pool(), "other.example", time.Now(), false},
		"other authority": {other.Pool(), "hooks.example", time.Now(), false},
		"after its time":  {authority.Pool(), "hooks.example", time.Now().AddDate(0, 2, 0), false},
	} {
		_, err := leaf.Verify(x509.VerifyOptions{Roots: row.roots, DNSName: row.host, CurrentTime: row.at})
		if (err == nil) != row.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := authority.Issue(localca.Certificate{}); err == nil {
		t.Error("a certificate for no host was issued")
	}
}
