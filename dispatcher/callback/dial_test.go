package callback_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"verifyd/dispatcher/callback"
	"verifyd/dispatcher/callback/localca"
	"verifyd/sessions/failure"
)

func TestReceiversWithoutAGoodTLSSession(t *testing.T) {
	stranger, err := localca.New()
	if err != nil {
		t.Fatal(err)
	}
	strange, err := stranger.Issue(localca.Certificate{Hosts: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	yesterday, tomorrow := time.Now().AddDate(0, 0, -1), time.Now().AddDate(0, 0, 1)
	cert := func(c localca.Certificate) *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{mustIssue(t, c)}}
	}
	here := []string{"127.0.0.1"}
	for name, row := range map[string]struct {
		config *tls.Config
		detail string
	}{
		"expired": {
			cert(localca.Certificate{Hosts: here, NotBefore: yesterday.AddDate(0, 0, -1),
				NotAfter: yesterday}), "expired on " + yesterday.UTC().Format("2 January 2006"),
		},
		"not yet": {
			cert(localca.Certificate{Hosts: here, NotBefore: tomorrow}), "not valid before " + tomorrow.UTC().
				Format("2 January 2006"),
		},
		"other host": {
			cert(localca.Certificate{Hosts: []string{"other.example", "192.0.2.1"}}),
			"is for other.example, 192.0.2.1, not for 127.0.0.1",
		},
		"many hosts": {
			cert(localca.Certificate{Hosts: []string{"a.example", "b.example", "c.example", "d.example"}}),
			"a.example, b.example, c.example and 1 more",
		},
		"stranger": {
			&tls.Config{Certificates: []tls.Certificate{strange}},
			"not signed by an authority that is trusted here",
		},
		"TLS 1.0 only": {
			&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS10}, "protocol version",
		},
		"TLS 1.1 only": {
			&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, "protocol version",
		},
		// Go's own server lets an HTTP/1.1 client through if only h2 is offered, so another protocol is used
		// here.
		"other ALPN": {&tls.Config{NextProtos: []string{"spdy/3"}}, "no application protocol"},
		"wants a client certificate": {
			&tls.Config{ClientAuth: tls.RequireAnyClientCert, MaxVersion: tls.VersionTLS12},
			"refused the TLS session: handshake failure; it has asked for a client certificate, and " +
				"verifyd has none",
		},
	} {
		r := receive(t, row.config, okAnswer)
		notSent := mustNotDial(t, newClient(time.Minute), r.url(t))
		if notSent.Class != failure.TLS || !strings.Contains(notSent.Detail, row.detail) {
			t.Errorf("%s: %v; want %q", name, notSent, row.detail)
		}
		if notSent.Address != r.listener.Addr().String() || notSent.Timing.TLS <= 0 ||
			notSent.Timing.Total < notSent.Timing.TLS {
			t.Errorf("%s: %+v", name, notSent)
		}
		if posts := r.stop(); len(posts) != 0 {
			t.Errorf("%s: %d POSTs", name, len(posts))
		}
	}
}

func listen(t *testing.T, greeting string, hold bool) string {
	t.Helper()
	return listenOn(t, "127.0.0.1:0", greeting, hold)
}

// listenOn starts a TCP server without TLS; it sends greeting, then waits for the client to leave, or closes
// at once.
func listenOn(t *testing.T, address, greeting string, hold bool) string {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte(greeting))
			for b := make([]byte, 4096); hold; {
				if _, err := conn.Read(b); err != nil {
					break
				}
			}
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-done
	})
	return listener.Addr().String()
}

func TestReceiversThatDoNotSpeakTLS(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		address string
		detail  string
	}{
		"plain HTTP":    {listen(t, "HTTP/1.1 400 Bad Request\r\n\r\n", true), "does not speak TLS"},
		"silent":        {listen(t, "", true), "did not finish the TLS handshake in time"},
		"closes before": {listen(t, "", false), "closed the connection during the TLS handshake"},
	} {
		notSent := mustNotDial(t, newClient(quick), mustURL(t, "https://"+row.address+"/?token=MARKER"))
		if notSent.Class != failure.TLS || !strings.Contains(notSent.Detail, row.detail) {
			t.Errorf("%s: %v", name, notSent)
		}
	}
}

func TestNoListener(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	notSent := mustNotDial(t, newClient(quick), mustURL(t, "https://"+address+"/"))
	if notSent.Class != failure.Connect ||
		!strings.Contains(notSent.Detail, "refused the connection") || notSent.Address != address {
		t.Errorf("%+v", notSent)
	}
}

func TestStoppingADial(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	cn, err := newClient(quick).Dial(ctx, mustURL(t, "https://"+listen(t, "", true)+"/"))
	if err == nil {
		_ = cn.Close()
		t.Fatal("dialled")
	}
	notSent, ok := errors.AsType[*callback.NotSent](err)
	if !ok || notSent.Class != failure.Connect || !strings.HasPrefix(notSent.Detail, "stopped") {
		t.Errorf("%+v", notSent)
	}
}

func TestTheZeroConfigIsStrict(t *testing.T) {
	r := receive(t, nil, okAnswer)
	notSent := mustNotDial(t, callback.New(callback.Config{}), r.url(t))
	if notSent.Class != failure.RefusedAddress ||
		!strings.Contains(notSent.Detail, "127.0.0.1 is a loopback address") {
		t.Errorf("%+v", notSent)
	}
	notSent = mustNotDial(t, callback.New(callback.Config{Policy: loopback, RootCAs: x509.NewCertPool()}),
		r.url(t))
	if notSent.Class != failure.TLS {
		t.Errorf("%+v", notSent)
	}
	if r.stop(); r.conns != 1 {
		t.Errorf("%d connections; the refused address was connected to", r.conns)
	}
}
