package devnetwork_test

import (
	"context"
	"errors"
	"html"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"verifyd/edge/devnetwork"
	"verifyd/edge/network"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start serves a dev network for the length of the test.
func start(t *testing.T, cfg devnetwork.Config) *devnetwork.Provider {
	t.Helper()
	p, err := devnetwork.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Listen(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(serve(t, p))
	return p
}

// serve runs Serve and returns a function that stops it and waits for its end.
func serve(t *testing.T, p *devnetwork.Provider) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Serve(ctx) }()
	return func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("serve ended with %v", err)
		}
	}
}

// join creates the network that verifyd would use, and registers it.
func join(t *testing.T, p *devnetwork.Provider) *network.Network {
	t.Helper()
	n, err := network.New(p.Settings(), network.Options{BaseURL: "http://localhost:8080"})
	if err != nil {
		t.Fatal(err)
	}
	p.AllowRedirect(n.RedirectURI())
	return n
}

// browser is a user's browser: it follows no redirect and keeps no connection.
var browser = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// send does a request and returns its answer with the body read.
func send(t *testing.T, req *http.Request) (*http.Response, string) {
	t.Helper()
	resp, err := browser.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

func get(t *testing.T, address string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	return send(t, req)
}

func post(t *testing.T, address string, form url.Values, edit ...func(*http.Request)) (*http.Response,
	string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address,
		strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for _, e := range edit {
		e(req)
	}
	return send(t, req)
}

var hiddenInput = regexp.MustCompile(`<input type="hidden" name="([^"]+)" value="([^"]*)">`)

// openForm opens an authorization address and returns the form's hidden fields.
func openForm(t *testing.T, address string) url.Values {
	t.Helper()
	resp, body := get(t, address)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("authorize answered %d: %s", resp.StatusCode, body)
	}
	form := url.Values{}
	for _, m := range hiddenInput.FindAllStringSubmatch(body, -1) {
		form.Set(m[1], html.UnescapeString(m[2]))
	}
	return form
}

// press fills the form, presses a button and returns the query of the return.
func press(t *testing.T, p *devnetwork.Provider, n *network.Network, a network.Attempt, subject,
	action string) url.Values {
	t.Helper()
	address, err := n.AuthURL(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	form := openForm(t, address)
	form.Set("subject", subject)
	form.Set("action", action)
	resp, body := post(t, p.Issuer()+"/authorize", form)
	back, err := resp.Location()
	if err != nil || resp.StatusCode != http.StatusSeeOther {
		t.Fatalf("authorize answered %d, %v: %s", resp.StatusCode, err, body)
	}
	if at := back.Scheme + "://" + back.Host + back.Path; at != n.RedirectURI() {
		t.Fatalf("returned to %s", at)
	}
	return back.Query()
}
