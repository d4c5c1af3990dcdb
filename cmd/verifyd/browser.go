package main

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
	// browserTimeout bounds one request of the stand-in browser, pageBytes what it reads of a page.
	browserTimeout = 15 * time.Second
	pageBytes      = 1 << 20
	// browserHops bounds a chain of redirects; a sign-in takes two.
	browserHops = 10
)

// browser does what a person's browser does on the way through a sign-in, as far as forms, redirects and cookies go: the demo
// and the end-to-end tests walk the real pages with it.
type browser struct {
	client *http.Client
	// visited, where set, is told each request and its answer's status.
	visited func(method string, u *url.URL, status int)
}

func newBrowser() *browser {
	jar, _ := cookiejar.New(nil) // never fails
	return &browser{client: &http.Client{
		Jar: jar, Timeout: browserTimeout,
		// A connection of its own each time: nothing is kept open after the last page.
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// page is a page that a browser shows.
type page struct {
	at     *url.URL
	status int
	doc    *html.Node
	text   string // all that a person can read, with single spaces
}

// open follows a link, and the redirects after it, to a page.
func (b *browser) open(ctx context.Context, link string) (*page, error) {
	return b.follow(ctx, http.MethodGet, link, nil, browserHops)
}

// press sends the form that has the button, as it is filled, and follows the redirects after it to a page.
func (b *browser) press(ctx context.Context, p *page, button string) (*page, error) {
	action, values, err := p.form(button)
	if err != nil {
		return nil, err
	}
	return b.follow(ctx, http.MethodPost, action, values, browserHops)
}

// begin sends a form as press does and stops at the first redirect, whose address it gives: the moment before the return.
func (b *browser) begin(ctx context.Context, p *page, button string) (next string, err error) {
	action, values, err := p.form(button)
	if err != nil {
		return "", err
	}
	response, err := b.request(ctx, http.MethodPost, action, values)
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

func (b *browser) follow(ctx context.Context, method, link string, form url.Values, hops int) (*page, error) {
	if hops == 0 {
		return nil, errors.New("too many redirects")
	}
	response, err := b.request(ctx, method, link, form)
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
	p := &page{at: response.Request.URL, status: response.StatusCode, doc: doc}
	p.text = strings.Join(strings.Fields(readable(doc)), " ")
	return p, nil
}

func (b *browser) request(ctx context.Context, method, link string, form url.Values) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, link, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	response, err := b.client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("browse: %w", err)
	}
	if b.visited != nil {
		b.visited(method, r.URL, response.StatusCode)
	}
	return response, nil
}

// form gives the address and values of the form whose button has the text or the value.
func (p *page) form(button string) (action string, values url.Values, err error) {
	for form := range nodes(p.doc, "form") {
		for b := range nodes(form, "button") {
			if strings.TrimSpace(readable(b)) != button && attr(b, "value") != button {
				continue
			}
			to, err := p.at.Parse(attr(form, "action"))
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
	return "", nil, fmt.Errorf("no button %q on the page %q (%d)", button, p.title(), p.status)
}

// title gives the first heading.
func (p *page) title() string {
	for h := range nodes(p.doc, "h1") {
		return strings.TrimSpace(readable(h))
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
