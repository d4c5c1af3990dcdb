//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"verifyd/dispatcher/callback/localca"
	"verifyd/edge/chromiumtest"
	"verifyd/natsconf/natstest"
)

// realProvider is a third-party OpenID Connect provider: a process of this test, with its own folder, port
// and https.
type realProvider struct {
	dir     string // what it reads and writes
	address string // 127.0.0.1 and the port of its process
	cert    tls.Certificate
	issuer  string
	log     *buffer
	client  *http.Client // trusts it

	users [2]realUser // who can sign in there
	// its pages for a user who wants to continue, and the answers; the first page that is shown is answered
	pages   []providerPage
	refusal []providerPage // the same for a user who does not want to
}

// verifyd's client at the real providers.
const realClient, realSecret = "verifyd", "sesame-of-the-harbor"

// realUser is a user of a real provider.
type realUser struct {
	name, password string
	email, group   string // as the provider reports them
}

// providerPage is one page of a provider's own.
type providerPage struct {
	name   string
	shows  string // selector of an element that is only on this page
	answer func(who realUser) actions
}

type actions = []chromedp.Action[chromedp.Void]

// typed fills in two fields, instead of what they may hold, and presses a button.
func typed(field, text, field2, text2, button string) actions {
	fill := func(field, text string) actions {
		all := chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`document.querySelector(%q).select()`, field))
		return actions{all, chromedp.SendKeys(chromedp.CSS(field), text)}
	}
	return slices.Concat(fill(field, text), fill(field2, text2), pressed(button))
}

// pressed presses buttons in order.
func pressed(buttons ...string) actions {
	var s actions
	for _, b := range buttons {
		s = append(s, chromiumtest.Click(chromedp.CSS(b)))
	}
	return s
}

// newRealProvider allocates a port and a folder for a provider with this certificate.
func newRealProvider(t *testing.T, ca *localca.Authority, cert tls.Certificate) *realProvider {
	t.Helper()
	p := &realProvider{dir: t.TempDir(), address: natstest.Address(t), cert: cert, log: &buffer{}}
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS12},
		DisableKeepAlives: true,
	}
	p.client = &http.Client{Transport: transport, Timeout: 20 * time.Second}
	return p
}

// serveFront runs a front that terminates TLS for the server at an address, and returns the front's address.
func serveFront(t *testing.T, cert tls.Certificate, listens string) string {
	t.Helper()
	behind := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: listens})
	behind.Transport = &http.Transport{DisableKeepAlives: true}
	front := httptest.NewUnstartedServer(behind)
	front.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	front.StartTLS()
	t.Cleanup(front.Close)
	return front.URL
}

func (p *realProvider) path(name string) string { return filepath.Join(p.dir, name) }

func (p *realProvider) write(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(p.path(name), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (p *realProvider) writePEM(t *testing.T, name, kind string, der []byte) {
	t.Helper()
	p.write(t, name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func (p *realProvider) writeKey(t *testing.T, name string, key any) {
	t.Helper()
	p.writePEM(t, name, "PRIVATE KEY", must[[]byte](t)(x509.MarshalPKCS8PrivateKey(key)))
}

// serve runs the provider's program for the length of the test, and waits until an address of it answers.
func (p *realProvider) serve(t *testing.T, up string, cmd *exec.Cmd) {
	t.Helper()
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = p.dir, p.log, p.log, &syscall.SysProcAttr{
		Setpgid: true, Pdeathsig: syscall.SIGTERM, // it ends its workers
	}
	ended, err := startTied(cmd)
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() { defer close(gone); <-ended }()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // with the workers that it has started
		<-gone
		if t.Failed() {
			t.Logf("the provider's log:\n%s", p.log)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), natstest.TestTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !p.answers(ctx, up) {
		select {
		case <-tick.C:
		case <-gone:
			t.Fatalf("the provider ended:\n%s", p.log)
		case <-ctx.Done():
			t.Fatalf("the provider does not come up:\n%s", p.log)
		}
	}
}

func (p *realProvider) answers(ctx context.Context, url string) bool {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	response, err := p.client.Do(q)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}
