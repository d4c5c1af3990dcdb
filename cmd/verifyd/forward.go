package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"verifyd/edge/client"
)

// forwardedBytes of an answer are read, and told to the service for people to see.
const forwardedBytes = 1 << 10

// forwarder POSTs callbacks to a program on this machine and tells the service how each ended.
type forwarder struct {
	to   *url.URL
	http http.Client

	mu  sync.Mutex
	out io.Writer
	now func() time.Time
}

func newForwarder(to *url.URL, timeout time.Duration, out io.Writer) *forwarder {
	return &forwarder{to: to, out: out, now: time.Now, http: http.Client{
		Timeout: timeout,
		// A new connection each time, HTTP/1.1, and no redirect: net/http repeats a request by itself on connections that it keeps.
		Transport: &http.Transport{
			DisableKeepAlives: true, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (f *forwarder) close() { f.http.CloseIdleConnections() }

// say prints a line with the time of day.
func (f *forwarder) say(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, _ = fmt.Fprintf(f.out, "%s  %s\n", f.now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

// forward brings one callback to the program.
func (f *forwarder) forward(ctx context.Context, l client.Listened) {
	began := f.now()
	o := f.post(ctx, l)
	took := f.now().Sub(began).Round(time.Millisecond)
	id := plainText(l.Header.Get("Webhook-Id"))
	switch {
	case !o.Sent:
		f.say("%s  not sent: %s; it comes again", id, o.Detail)
	case o.Status == 0:
		f.say("%s  unknown: %s  (%s)", id, o.Detail, took)
	default:
		f.say("%s  %d %s  (%s)", id, o.Status, http.StatusText(o.Status), took)
	}
	if err := l.Answer(ctx, o); err != nil {
		if refused, ok := errors.AsType[*client.Error](err); ok && refused.Code == client.CodeExchangeOver {
			f.say("%s  too late: the service has recorded it as unknown", id)
			return
		}
		f.say("%s  the service was not told: %v", id, err)
	}
}

// post makes the one POST.
func (f *forwarder) post(ctx context.Context, l client.Listened) client.Outcome {
	var sent atomic.Bool // from the connection on, it may be
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent.Store(true) }})
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, f.to.String(), bytes.NewReader(l.Body))
	if err != nil {
		return client.Outcome{Detail: "the address to forward to cannot be used"}
	}
	r.Header = l.Header.Clone()
	r.GetBody = nil // what cannot be read again cannot be sent again
	response, err := f.http.Do(r)
	if err != nil {
		return client.Outcome{Sent: sent.Load(), Detail: f.why(err, sent.Load())}
	}
	defer func() { _ = response.Body.Close() }()
	body, _ := io.ReadAll(io.LimitReader(response.Body, forwardedBytes)) // the status has decided; the rest is for people
	return client.Outcome{Sent: true, Status: response.StatusCode, Body: strings.ToValidUTF8(string(body), "\uFFFD")}
}

// why says in short what kept an answer from coming.
func (f *forwarder) why(err error, sent bool) string {
	timeout, ok := errors.AsType[*url.Error](err)
	switch {
	case ok && timeout.Timeout():
		return fmt.Sprintf("%s gave no answer within %s", f.to.Host, f.http.Timeout)
	case !sent:
		return f.to.Host + " could not be reached"
	}
	return f.to.Host + " closed the connection without an answer"
}

// plainText keeps a terminal safe from what came over the wire.
func plainText(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}
