package dashboard_test

import (
	"crypto/tls"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// answer is what a request brought.
type answer struct {
	status int
	header http.Header
	body   string
	at     string // the address it came from
}

// browser has cookies and follows no redirect by itself.
type browser struct {
	t      testing.TB
	r      *rig
	client *http.Client
}

func (r *rig) browser() *browser {
	r.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		r.t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}}
	if r.setup.tls {
		transport.TLSClientConfig.RootCAs = r.server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	}
	r.t.Cleanup(transport.CloseIdleConnections)
	return &browser{r.t, r, &http.Client{
		Transport: transport, Jar: jar,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (b *browser) do(req *http.Request) answer {
	b.t.Helper()
	resp, err := b.client.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(body), req.URL.String()}
}

func (b *browser) request(method, address, body string) *http.Request {
	b.t.Helper()
	if !strings.HasPrefix(address, "http") {
		address = b.r.base + address
	}
	req, err := http.NewRequestWithContext(b.t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	return req
}

func (b *browser) get(address string) answer {
	b.t.Helper()
	return b.do(b.request(http.MethodGet, address, ""))
}

// post sends a form as a browser does from a page of the address's own origin. Pairs of names and values.
func (b *browser) post(address string, pairs ...string) answer {
	b.t.Helper()
	form := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		form.Set(pairs[i], pairs[i+1])
	}
	req := b.request(http.MethodPost, address, form.Encode())
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	return b.do(req)
}

// to gives where a 303 leads.
func (b *browser) to(a answer) string {
	b.t.Helper()
	if a.status != http.StatusSeeOther {
		b.t.Fatalf("%s answered %d, want 303\n%s", a.at, a.status, a.body)
	}
	from, err := url.Parse(a.at)
	if err != nil {
		b.t.Fatal(err)
	}
	u, err := from.Parse(a.header.Get("Location"))
	if err != nil {
		b.t.Fatal(err)
	}
	return u.String()
}

// follow goes where a 303 leads.
func (b *browser) follow(a answer) answer {
	b.t.Helper()
	return b.get(b.to(a))
}

// login goes through the dev network as somebody, and gives the answer of the place of return.
func (b *browser) login(subject string, next ...string) answer {
	b.t.Helper()
	return b.get(b.back(subject, append(next, "")[0]))
}

// back is the way to the dev network's return.
func (b *browser) back(subject, next string) string {
	b.t.Helper()
	authorize := b.to(b.post("/dashboard/login", "network", "example", "next", next))
	u, err := url.Parse(authorize)
	if err != nil {
		b.t.Fatal(err)
	}
	pairs := []string{"subject", subject, "action", "sign-in"}
	for name, values := range u.Query() {
		pairs = append(pairs, name, values[0])
	}
	return b.to(b.post(b.r.dev.Issuer()+"/authorize", pairs...))
}

// as is a browser that is logged in.
func (r *rig) as(subject string) *browser {
	r.t.Helper()
	b := r.browser()
	b.to(b.login(subject))
	return b
}

// want fails unless the answer has this status and these texts.
func (a answer) want(tb testing.TB, status int, texts ...string) {
	tb.Helper()
	if a.status != status {
		tb.Fatalf("%s: status %d, want %d\n%s", a.at, a.status, status, a.body)
	}
	for _, text := range texts {
		if !strings.Contains(a.text(), text) {
			tb.Errorf("%s: %q is missing in\n%s", a.at, text, a.text())
		}
	}
}

func (a answer) lacks(tb testing.TB, texts ...string) {
	tb.Helper()
	for _, text := range texts {
		if strings.Contains(a.body, text) || strings.Contains(a.text(), text) {
			tb.Errorf("%s: %q is there", a.at, text)
		}
	}
}

var tags = regexp.MustCompile(`<[^>]*>`)

// text is what a page says, without its tags.
func (a answer) text() string { return html.UnescapeString(tags.ReplaceAllString(a.body, "")) }
