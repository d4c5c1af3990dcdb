package main

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"verifyd/cmd/verifyd/check"
	"verifyd/cmd/verifyd/config"
	"verifyd/dispatcher/callback/localca"
	"verifyd/natsconf/certificate"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/natstest/secured"
	"verifyd/natsconf/secretbox"
	"verifyd/natsconf/topology"
)

// The certificate of a NATS server is a metric, a line of status and of check, and, when it has expired, the
// reason in /readyz.
func TestCertificatesAreReported(t *testing.T) {
	t.Parallel()
	at, key := secured.Start(t), secretbox.NewKey()
	r := boot(t, func(c *config.Config) {
		c.Store.NATSURL, c.Store.NATSRoots, c.Store.Key = at.URL, at.Roots, &key
		c.Store.Topology = topology.Options{Replicas: 1}
		c.StoreWait = time.Second
	})
	flags := []string{"--nats-ca-file", at.CAFile, "--replicas", "1"}
	look := func(left time.Duration) (expires time.Time) {
		expires = at.Renew(t, left)
		r.Store.Conn.Servers.Look(t.Context())
		return expires
	}
	until := look(60 * 24 * time.Hour)
	scraped := func() string {
		_, _, body := api{base: "http://" + r.Admin}.call(t, http.MethodGet, "/metrics", "")
		return string(body)
	}
	if want := fmt.Sprintf("verifyd_certificate_expiry_timestamp_seconds{certificate=%q} %v\n", at.Address(),
		float64(until.Unix())); !strings.Contains(scraped(), want) {
		t.Errorf("no %s in the metrics", want)
	}
	natstest.Await(t, "status shows the certificate", func() bool {
		code, doc := statusOf(t, append(r.reach(), flags...)...)
		return code == 0 && slices.ContainsFunc(doc.Certificates, func(c certificate.Certificate) bool {
			return c.Of == at.Address() && c.Expires.Equal(until)
		})
	})
	code, found := checked(t, append(r.reach(), flags...)...)
	expectFound(t, found, "certificates", check.LevelOK, at.Address()+": expires at ")
	expectFound(t, found, "certificates", check.LevelOK, "VERIFYD_NATS_CA_FILE: expires at ")
	if code != 0 {
		t.Errorf("exit code %d", code)
	}

	look(5 * 24 * time.Hour)
	natstest.Await(t, "status complains", func() bool {
		_, doc := statusOf(t, append(r.reach(), flags...)...)
		return strings.Contains(strings.Join(doc.Problems, "\n"),
			"certificate of "+at.Address()+": expires at ")
	})
	_, out, _ := verifyd(t, append(append([]string{"status"}, r.reach()...), flags...)...)
	if !strings.Contains(out, "Certificate  "+at.Address()+": expires at ") {
		t.Errorf("no certificate in %s", out)
	}
	code, found = checked(t, append(r.reach(), flags...)...)
	expectFound(t, found, "certificates", check.LevelWarning, "in 4 days")
	if code != 0 {
		t.Errorf("exit code %d", code)
	}

	at.Renew(t, -time.Hour)
	at.Disconnect(t, r.Store.Conn)
	natstest.Await(t, "readyz has the reason", func() bool {
		status, reason := r.awaitCheck(t, "jetstream", false)
		return status == http.StatusServiceUnavailable &&
			strings.Contains(reason, "certificate has expired") &&
			!strings.Contains(reason, secured.Password)
	})
	for _, ready := range []string{"verifyd_edge_ready 0\n", "verifyd_dispatcher_ready 0\n"} {
		if !strings.Contains(scraped(), ready) {
			t.Errorf("without NATS there is no %s", ready)
		}
	}
	at.Renew(t, time.Hour)
	r.awaitCheck(t, "jetstream", true)
	for _, ready := range []string{"verifyd_edge_ready 1\n", "verifyd_dispatcher_ready 1\n"} {
		natstest.Await(t, ready, func() bool { return strings.Contains(scraped(), ready) })
	}
}

// What a service meets is in its status, and what check connects to is a line of it. A receiver's certificate
// is no problem of the service, and in no metric.
func TestMetCertificatesAreReported(t *testing.T) {
	t.Parallel()
	r := boot(t)
	finish, s := r.finisher(t), r.begin(t)
	finish(s.Session)
	<-r.inbox.got
	const receiver = "receiver 127.0.0.1"
	natstest.Await(t, "status shows the receiver's certificate", func() bool {
		_, doc := statusOf(t, r.reach()...)
		return slices.ContainsFunc(doc.Certificates, func(c certificate.Certificate) bool {
			return c.Of == receiver && c.Foreign
		})
	})
	if _, _, body := (api{base: "http://" + r.Admin}).call(t, http.MethodGet, "/metrics", ""); strings.
		Contains(string(body), receiver) {
		t.Error("a receiver's certificate is in the metrics")
	}

	dir := t.TempDir()
	ca, networks := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "networks.yaml")
	far := newEgress(t, must[tls.Certificate](t)(r.inbox.ca.Issue(localca.Certificate{
		Hosts: []string{"127.0.0.1"}, NotBefore: time.Now().AddDate(0, -2, 0),
		NotAfter: time.Now().AddDate(0, 0, 5),
	})))
	for path, text := range map[string]string{
		ca: string(r.inbox.ca.PEM()),
		networks: "- {id: n, name: N, kind: oidc, issuer: '" + far.URL +
			"', client_id: c, client_secret: s}\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, found := checked(t, "--data-dir", filepath.Join(dir, "store"), "--networks-file", networks,
		"--network-ca-file", ca, "--callback-ca-file", ca, "--trace-ca-file", ca, "--trace-endpoint", far.URL,
		"--callback-proxy", far.URL, "--callback-allow-cidrs", "127.0.0.0/8",
		"--probe", r.inbox.CallbackURL(), "--alarm-url", r.inbox.CallbackURL(), "--alarm-secret", alarmSecret)
	for _, of := range []string{"identity network", "egress proxy", "collector"} {
		expectFound(t, found, "certificates", check.LevelWarning, of+" 127.0.0.1: expires at ")
	}
	expectFound(t, found, "certificates", check.LevelOK, receiver+": expires at ")
	expectFound(t, found, "certificates", check.LevelOK, "alarm address 127.0.0.1: expires at ")
	expectFound(t, found, "egress", check.LevelOK, "the egress proxy can be reached")
}

// A process shows the roles that it has, and no other.
func TestReadyByRole(t *testing.T) {
	t.Parallel()
	r := boot(t, func(c *config.Config) { c.Dispatcher = false })
	_, _, body := api{base: "http://" + r.Admin}.call(t, http.MethodGet, "/metrics", "")
	if !strings.Contains(string(body), "\nverifyd_edge_ready 1\n") ||
		strings.Contains(string(body), "verifyd_dispatcher_ready") {
		t.Errorf("an edge shows %s", body)
	}
	r = boot(t, func(c *config.Config) { c.Edge, c.CallbackRetryFor = false, time.Hour })
	_, _, body = api{base: "http://" + r.Admin}.call(t, http.MethodGet, "/metrics", "")
	if !strings.Contains(string(body), "\nverifyd_dispatcher_ready 1\n") ||
		!strings.Contains(string(body), "\nverifyd_delivery_retry_for_seconds 3600\n") ||
		strings.Contains(string(body), "verifyd_edge_ready") {
		t.Errorf("a dispatcher shows %s", body)
	}
}
