package load

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"verifyd/dispatcher/callback/localca"
	"verifyd/natsconf/natstest"
)

// send opens a connection to a host of the receiver, with its certificate checked, and writes to it.
func send(t *testing.T, r *Receiver, host int, requests string) *tls.Conn {
	t.Helper()
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: 5 * time.Second}, "tcp", r.Hosts[host], &tls.Config{
		RootCAs: r.ca.Pool(), MinVersion: tls.VersionTLS12,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, requests); err != nil {
		t.Fatal(err)
	}
	return c
}

func newCA(t *testing.T) *localca.Authority {
	t.Helper()
	ca, err := localca.New()
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func post(id string) string {
	return "POST /verified HTTP/1.1\r\nHost: x\r\nWebhook-Id: " + id + "\r\nContent-Length: 4\r\n\r\nbody"
}

// Callbacks are counted once each, at whichever host they arrive; one that comes again is reported as a
// duplicate.
func TestReceiverCounts(t *testing.T) {
	r, err := NewReceiver(newCA(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got := r.Count(3)
	c := send(t, r, 0, post("a")+post("b")+post("a"))
	b := make([]byte, 3*len(noContent))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != strings.Repeat(string(noContent), 3) {
		t.Fatalf("%q, %v", b, err)
	}
	natstest.Await(t, "the one that came again is counted", func() bool { // after it is answered
		_, duplicates, _ := got.Seen()
		return duplicates == 1
	})
	began := time.Now()
	send(t, r, 0, post("c"))
	at, err := got.Wait(t.Context(), "c")
	if err != nil || at.Before(began.Add(-time.Second)) {
		t.Fatalf("%s, %v", at, err)
	}
	<-got.Done
	if again, err := got.Wait(t.Context(), "c"); err != nil || !again.Equal(at) {
		t.Errorf("%s, %v", again, err)
	}
	if n, duplicates, took := got.Seen(); n != 3 || duplicates != 1 || took <= 0 {
		t.Errorf("%d callbacks, %d duplicates, %s from the first to the last", n, duplicates, took)
	}
	fresh := r.Count(1)
	if n, duplicates, _ := fresh.Seen(); n != 0 || duplicates != 0 {
		t.Errorf("a new count begins with %d and %d", n, duplicates)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := fresh.Wait(ctx, "never"); err == nil {
		t.Error("a callback that never came was waited for with success")
	}
}

// Each host is an address of its own, with a certificate for it.
func TestReceiverIsManyHosts(t *testing.T) {
	r, err := NewReceiver(newCA(t), 300)
	if err != nil {
		t.Skipf("skipped: %v", err) // beyond Linux
	}
	defer r.Close()
	hosts := map[string]bool{}
	for _, h := range r.Hosts {
		hosts[h] = true
	}
	if len(hosts) != 300 {
		t.Errorf("%d hosts", len(hosts))
	}
	got := r.Count(2)
	send(t, r, 1, post("a"))
	send(t, r, 299, post("b"))
	<-got.Done
	if r.URL(299) == r.URL(1) || r.URL(301) != r.URL(1) {
		t.Errorf("%s %s %s", r.URL(1), r.URL(299), r.URL(301))
	}
}

// What is not a callback is neither counted nor answered.
func TestReceiverTakesCallbacksOnly(t *testing.T) {
	r, err := NewReceiver(newCA(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got := r.Count(1)
	for name, request := range map[string]string{
		"another method": "GET / HTTP/1.1\r\nWebhook-Id: a\r\nContent-Length: 0\r\n\r\n",
		"no id":          "POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
		"no length":      "POST / HTTP/1.1\r\nWebhook-Id: a\r\n\r\n",
		"a bad length":   "POST / HTTP/1.1\r\nWebhook-Id: a\r\nContent-Length: x\r\n\r\n",
	} {
		if b, _ := io.ReadAll(send(t, r, 0, request)); len(b) > 0 {
			t.Errorf("%s was answered: %q", name, b)
		}
	}
	if n, _, _ := got.Seen(); n != 0 {
		t.Errorf("%d callbacks", n)
	}
}
