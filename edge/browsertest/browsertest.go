// Package browsertest is a browser without a screen for tests of pages. It keeps cookies, sends forms as a
// page of the same site does, and follows no redirect by itself, so that a test sees each answer. Package
// chromiumtest is the real thing, where looks and scripts count.
package browsertest

import (
	"crypto/tls"
	"crypto/x509"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// Browser has cookies and follows no redirect by itself. It is for one goroutine's test, whose end closes its
// connections.
type Browser struct {
	Base   string // addresses that do not begin with http are below it
	Client *http.Client

	tb testing.TB
}

// New makes a browser that trusts roots, or those of the system where there are none.
func New(tb testing.TB, base string, roots *x509.CertPool) *Browser {
	tb.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		tb.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}}
	tb.Cleanup(transport.CloseIdleConnections)
	return &Browser{Base: base, tb: tb, Client: &http.Client{
		Transport: transport, Jar: jar,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Answer is what a request brought.
type Answer struct {
	Status int
	Header http.Header
	Body   string
	At     string // the address it came from
}

// Request makes a request.
func (b *Browser) Request(method, address, body string) *http.Request {
	b.tb.Helper()
	if !strings.HasPrefix(address, "http") {
		address = b.Base + address
	}
	req, err := http.NewRequestWithContext(b.tb.Context(), method, address, strings.NewReader(body))
	if err != nil {
		b.tb.Fatal(err)
	}
	return req
}

// Do sends a request and reads the whole answer.
func (b *Browser) Do(req *http.Request) Answer {
	b.tb.Helper()
	resp, err := b.Client.Do(req)
	if err != nil {
		b.tb.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		b.tb.Fatal(err)
	}
	return Answer{resp.StatusCode, resp.Header, string(body), req.URL.String()}
}

// Get opens an address.
func (b *Browser) Get(address string) Answer {
	b.tb.Helper()
	return b.Do(b.Request(http.MethodGet, address, ""))
}

// Post sends a form as a browser does from a page of the address's own origin.
func (b *Browser) Post(address string, form url.Values) Answer {
	b.tb.Helper()
	req := b.Request(http.MethodPost, address, form.Encode())
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	return b.Do(req)
}

// To returns where a 303 leads.
func (b *Browser) To(a Answer) string {
	b.tb.Helper()
	if a.Status != http.StatusSeeOther {
		b.tb.Fatalf("%s answered %d, want 303\n%s", a.At, a.Status, a.Body)
	}
	return b.Resolve(a.At, a.Header.Get("Location"))
}

// Follow goes where a 303 leads.
func (b *Browser) Follow(a Answer) Answer {
	b.tb.Helper()
	return b.Get(b.To(a))
}

// Resolve returns where a reference leads from an address.
func (b *Browser) Resolve(from, reference string) string {
	b.tb.Helper()
	u, err := url.Parse(from)
	if err == nil {
		u, err = u.Parse(reference)
	}
	if err != nil {
		b.tb.Fatal(err)
	}
	return u.String()
}

// Want fails unless the answer has this status and its page says these texts.
func (a Answer) Want(tb testing.TB, status int, texts ...string) {
	tb.Helper()
	if a.Status != status {
		tb.Fatalf("%s: status %d, want %d\n%s", a.At, a.Status, status, a.Body)
	}
	for _, text := range texts {
		if !strings.Contains(a.Text(), text) {
			tb.Errorf("%s: %q is missing in\n%s", a.At, text, a.Text())
		}
	}
}

// WantPage fails unless the answer has this status and its page this heading, as it is written in HTML.
func (a Answer) WantPage(tb testing.TB, status int, heading string) {
	tb.Helper()
	if a.Status != status || !strings.Contains(a.Body, "<h1>"+heading+"</h1>") {
		tb.Errorf("%s: status %d, want %d with heading %q\n%s", a.At, a.Status, status, heading, a.Body)
	}
}

// Holds fails unless the page's source has these texts, which may be markup.
func (a Answer) Holds(tb testing.TB, texts ...string) {
	tb.Helper()
	for _, text := range texts {
		if !strings.Contains(html.UnescapeString(a.Body), text) {
			tb.Errorf("%s: the page lacks %q\n%s", a.At, text, a.Body)
		}
	}
}

// Lacks fails where a text is in the page or its source.
func (a Answer) Lacks(tb testing.TB, texts ...string) {
	tb.Helper()
	for _, text := range texts {
		if strings.Contains(a.Body, text) || strings.Contains(a.Text(), text) {
			tb.Errorf("%s: %q is there", a.At, text)
		}
	}
}

var tags = regexp.MustCompile(`<[^>]*>`)

// Text is what the page says, without its tags.
func (a Answer) Text() string { return html.UnescapeString(tags.ReplaceAllString(a.Body, "")) }
