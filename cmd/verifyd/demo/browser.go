package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/html"
)

const (
	// BrowserTimeout bounds one request of the stand-in browser, pageBytes what it reads of a page.
	BrowserTimeout = 15 * time.Second
	pageBytes      = 1 << 20
	// browserHops bounds a chain of redirects; a sign-in takes two.
	browserHops = 10
)

// Browser does what a person's browser does during a sign-in, as far as forms, redirects and cookies are
// concerned: the demo and the end-to-end tests walk through the real pages with it.
type Browser struct {
	Client *http.Client
	// Visited, if set, is called with each request and its answer's status.
	Visited func(method string, u *url.URL, status int)
}

// NewBrowser returns a browser without cookies.
func NewBrowser() *Browser {
	jar, _ := cookiejar.New(nil) // never fails
	return &Browser{Client: &http.Client{
		Jar: jar, Timeout: BrowserTimeout,
		// A connection of its own each time: nothing is kept open after the last page.
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Page is a page that a browser shows.
type Page struct {
	At     *url.URL
	Status int
	doc    *html.Node
	Text   string // all that a person can read, with single spaces
}

// Open follows a link, and the redirects after it, to a page.
func (b *Browser) Open(ctx context.Context, link string) (*Page, error) {
	return b.follow(ctx, http.MethodGet, link, nil, browserHops)
}

// Press sends the form that has the button, as it is filled, and follows the redirects after it to a page.
func (b *Browser) Press(ctx context.Context, p *Page, button string) (*Page, error) {
	action, values, err := p.form(button)
	if err != nil {
		return nil, err
	}
	return b.follow(ctx, http.MethodPost, action, values, browserHops)
}

// pressUntil presses a button until the page that follows has another one, once a second until ctx ends: one
// of several edges may have found the identity network unavailable a moment ago, and reports that for a
// while.
func (b *Browser) pressUntil(ctx context.Context, p *Page, button, wanted string) (*Page, error) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		next, err := b.Press(ctx, p, button)
		if err != nil {
			return nil, err
		}
		if _, _, err = next.form(wanted); err == nil {
			return next, nil
		}
		p = next
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, err
		}
	}
}

// Begin sends a form as Press does and stops at the first redirect, whose address it returns: the moment
// before the return.
func (b *Browser) Begin(ctx context.Context, p *Page, button string) (next string, err error) {
	action, values, err := p.form(button)
	if err != nil {
		return "", err
	}
	response, err := b.Request(ctx, http.MethodPost, action, values)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	to, err := response.Location()
	if err != nil {
		return "", fmt.Errorf("%d without a redirect", response.StatusCode)
	}
	return to.String(), nil
}

func (b *Browser) follow(ctx context.Context, method, link string, form url.Values, hops int) (*Page, error) {
	if hops == 0 {
		return nil, errors.New("too many redirects")
	}
	response, err := b.Request(ctx, method, link, form)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if to, err := response.Location(); err == nil && response.StatusCode/100 == 3 {
		return b.follow(ctx, http.MethodGet, to.String(), nil, hops-1)
	}
	doc, err := html.Parse(io.LimitReader(response.Body, pageBytes))
	if err != nil {
		return nil, fmt.Errorf("read the page: %w", err)
	}
	p := &Page{At: response.Request.URL, Status: response.StatusCode, doc: doc}
	p.Text = strings.Join(strings.Fields(readable(doc)), " ")
	return p, nil
}

// Request sends one request, and follows no redirect.
func (b *Browser) Request(ctx context.Context, method, link string, form url.Values) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, link, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	response, err := b.Client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("browse: %w", err)
	}
	if b.Visited != nil {
		b.Visited(method, r.URL, response.StatusCode)
	}
	return response, nil
}

// form returns the address and values of the form whose button has the text or the value.
func (p *Page) form(button string) (action string, values url.Values, err error) {
	for form := range nodes(p.doc, "form") {
		for b := range nodes(form, "button") {
			if strings.TrimSpace(readable(b)) != button && attr(b, "value") != button {
				continue
			}
			to, err := p.At.Parse(attr(form, "action"))
			if err != nil {
				return "", nil, fmt.Errorf("the form's address: %w", err)
			}
			values := url.Values{}
			for input := range nodes(form, "input") {
				values.Set(attr(input, "name"), attr(input, "value"))
			}
			if name := attr(b, "name"); name != "" {
				values.Set(name, attr(b, "value"))
			}
			return to.String(), values, nil
		}
	}
	return "", nil, fmt.Errorf("no button %q on the page %q (%d)", button, p.Title(), p.Status)
}

// Title returns the first heading.
func (p *Page) Title() string {
	for h := range nodes(p.doc, "h1") {
		return strings.TrimSpace(readable(h))
	}
	return ""
}

// Code returns the code that the page shows, which confirms the session; empty if it shows none.
func (p *Page) Code() string {
	for k := range nodes(p.doc, "kbd") {
		return strings.TrimSpace(readable(k))
	}
	return ""
}

// nodes yields the elements of a tag below n.
func nodes(n *html.Node, tag string) func(yield func(*html.Node) bool) {
	return func(yield func(*html.Node) bool) {
		for d := range n.Descendants() {
			if d.Type == html.ElementNode && d.Data == tag && !yield(d) {
				return
			}
		}
	}
}

func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func readable(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
			b.WriteString(" ")
		}
	}
	return b.String()
}
