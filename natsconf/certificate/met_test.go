package certificate_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"verifyd/natsconf/certificate"
)

// shown is a handshake with a server whose certificate has so much left.
func shown(t *testing.T, host string, left time.Duration) tls.ConnectionState {
	t.Helper()
	c := made(t, host, left)
	return tls.ConnectionState{ServerName: host, PeerCertificates: []*x509.Certificate{c},
		VerifiedChains: [][]*x509.Certificate{{c}}}
}

// What servers show is kept for a day, by kind and host, each host's newest.
func TestMetKeepsTheNewestOfADay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var met certificate.Met
		for _, state := range []tls.ConnectionState{
			shown(t, "a.example", 10*day), shown(t, "a.example", 80*day),
		} {
			if err := met.Verify("identity network")(state); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(20 * time.Hour) // of the bubble
		if err := met.VerifyReceiver()(shown(t, "b.example", 5*day)); err != nil {
			t.Error(err)
		}
		all := met.List()
		if len(all) != 2 || all[0].Of != "identity network a.example" || all[0].Foreign ||
			!all[0].Expires.Equal(now.Add(80*day)) || all[1].Of != "receiver b.example" || !all[1].Foreign {
			t.Errorf("%+v", all)
		}
		time.Sleep(5 * time.Hour) // of the bubble
		if all := met.List(); len(all) != 1 || all[0].Of != "receiver b.example" {
			t.Errorf("after a day: %+v", all)
		}
	})
}

// Of many it keeps those that expire first, and no receiver displaces another server.
func TestMetIsBounded(t *testing.T) {
	t.Parallel()
	var met certificate.Met
	if err := met.Verify("egress proxy")(shown(t, "p.example", 80*day)); err != nil {
		t.Error(err)
	}
	for i := range 100 {
		left := time.Duration(60-i%60) * day // the first expire last
		if err := met.VerifyReceiver()(shown(t, fmt.Sprintf("r%02d.example", i), left)); err != nil {
			t.Error(err)
		}
	}
	all := met.List()
	if len(all) != 32 || all[0].Of != "egress proxy p.example" {
		t.Errorf("%d, the first is %+v", len(all), all[0])
	}
	for _, c := range all[1:] {
		if !strings.HasPrefix(c.Of, "receiver r") || c.Expires.After(now.Add(26*day)) {
			t.Errorf("kept: %+v", c)
		}
	}
}

// An address has no name in a handshake.
func TestMetNamesAddresses(t *testing.T) {
	t.Parallel()
	var met certificate.Met
	state := shown(t, "", day)
	state.PeerCertificates[0].IPAddresses = []net.IP{{192, 0, 2, 1}}
	if err := met.Verify("collector")(state); err != nil || met.List()[0].Of != "collector 192.0.2.1" {
		t.Errorf("%v, %+v", err, met.List())
	}
	if none := (*certificate.Met)(nil); none.Verify("collector") != nil || none.List() != nil {
		t.Error("a nil one keeps something")
	}
}
