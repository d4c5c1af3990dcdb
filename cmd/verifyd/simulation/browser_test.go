package simulation_test

import (
	"context"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"time"

	"verifyd/sessions"
)

// The titles of pages, and the name of the cookie that identifies a browser.
const (
	pageAsk      = "Is this you?"
	pageConfirm  = "One more step"
	pageCode     = "The code is in another browser"
	browserKnown = "__Host-verifyd_browser"
)

// pageStates has the title of each page that a user may see here, and the state that the page shows; empty
// if it shows none.
var pageStates = map[string]sessions.State{
	"You are verified": sessions.Verified, "You were not verified": sessions.Failed,
	"No longer needed": sessions.Canceled, "This link has expired": sessions.Expired,
	pageAsk: sessions.Pending, pageConfirm: sessions.Pending, "One moment, please": "",
	"Started in another browser":           sessions.Pending,
	pageCode:                               sessions.Pending,
	"We lost track of your sign-in":        "",
	"Your browser does not accept cookies": "",
	"Too many tries":                       "",
}

// browser is a user's browser: it keeps cookies, and sends each request to one of the edges.
type browser struct {
	s     *session
	w     *world
	name  string
	edges []*worker
	// in the calm: it leaves a moment after its return, and looks again later
	hurried bool
	shown   bool // in the calm: its return address is opened in another browser first
	forgot  bool // it has lost the cookie that identifies it

	mu      sync.Mutex
	cookies map[string]string
}

// answer is the response to a request.
type answer struct {
	status int
	to     string // target of a redirect, without the base URL
	title  string
	body   string
}

func (b *browser) cookie(name string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cookies[name]
}

// request builds a request as browsers send it from a page of the same site.
func (b *browser) request(ctx context.Context, target string, form url.Values) *http.Request {
	method := http.MethodGet
	if form != nil {
		method = http.MethodPost
	}
	q := httptest.NewRequestWithContext(ctx, method, baseURL+target, strings.NewReader(form.Encode()))
	q.Header.Set("User-Agent", "Mozilla/5.0")
	q.Header.Set("Accept", "text/html")
	q.Header.Set("Accept-Language", "en")
	if form != nil {
		q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		q.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range sortedKeys(b.cookies) {
		q.AddCookie(&http.Cookie{Name: name, Value: b.cookies[name]})
	}
	return q
}

// patience is how long a browser waits for an answer: longer than an edge takes for any.
const patience = 45 * time.Second

// send sends a request to an edge; with a form it is a POST. It reports whether an answer arrived. began and
// ended, which may be nil, are called when the edge begins and when it has ended the request, even if the
// browser no longer waits.
func (b *browser) send(ctx context.Context, what, target string, form url.Values,
	began, ended func()) (a answer, ok bool) {
	r := b.w.draw("%s of %s", what, b.name)
	k := b.edges[r.IntN(len(b.edges))]
	stays := patience
	if b.w.odd(r, "browser leaves") {
		stays = time.Duration(r.IntN(3000)) * time.Millisecond
	}
	if b.hurried && what == "return" {
		stays = time.Duration(r.Int64N(int64(4 * time.Millisecond))) // about as long as a return takes
	}
	time.Sleep(time.Duration(r.Int64N(int64(time.Millisecond)))) // in virtual time
	l := k.current()
	if l == nil || b.w.odd(r, "request lost") {
		return answer{}, false
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	asked := time.Now()
	q, rec, done := b.request(ctx, target, form), httptest.NewRecorder(), make(chan struct{})
	if began != nil {
		began()
	}
	b.w.serving.Go(func() {
		defer close(done)
		l.pages.ServeHTTP(rec, q)
		if ended != nil {
			ended()
		}
	})
	late := time.NewTimer(stays)
	defer late.Stop()
	select {
	case <-done:
	case <-l.died:
		return answer{}, false
	case <-late.C:
		b.w.note("%s does not wait for its %s", b.name, what)
		return answer{}, false
	}
	if l.gone() || b.w.odd(r, "answer lost") {
		return answer{}, false
	}
	return b.take(what, k.name, rec, asked), true
}

// take stores the cookies of an answer, and records what its page shows.
func (b *browser) take(what, edge string, rec *httptest.ResponseRecorder, asked time.Time) answer {
	res := rec.Result()
	b.mu.Lock()
	for _, c := range res.Cookies() {
		if b.cookies[c.Name] = c.Value; c.MaxAge < 0 {
			delete(b.cookies, c.Name)
		}
	}
	b.mu.Unlock()
	a := answer{status: rec.Code, body: rec.Body.String()}
	if rec.Code == http.StatusSeeOther {
		a.to = strings.TrimPrefix(res.Header.Get("Location"), baseURL)
		where, _, _ := strings.Cut(a.to, "?")
		b.w.note("%s is led to %s by %s, for its %s", b.name, where, edge, what)
		return a
	}
	_, title, _ := strings.Cut(a.body, "<title>")
	title, _, _ = strings.Cut(title, "</title>")
	a.title = html.UnescapeString(title)
	b.w.note("%s sees %q of %s, for its %s", b.name, a.title, edge, what)
	b.s.recordPage(a, asked)
	return a
}

// code returns the code on a page that shows one.
func (a answer) code() string {
	_, code, _ := strings.Cut(a.body, `<kbd`)
	_, code, _ = strings.Cut(code, ">")
	code, _, _ = strings.Cut(code, "<")
	return strings.ReplaceAll(code, " ", "")
}

// notice returns the notice in a redirect to the page.
func (a answer) notice() string {
	u, err := url.Parse(a.to)
	if err != nil {
		return ""
	}
	return u.Query().Get("note")
}
