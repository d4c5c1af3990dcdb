package integrator

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

	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/version"
	"verifyd/edge/client"
)

const (
	// listenAgain is the pause before reconnecting; it doubles up to maxListenAgain while that fails.
	listenAgain    = 500 * time.Millisecond
	maxListenAgain = 10 * time.Second
)

// Listen brings the callbacks of a test key's sessions to a program on this machine.
type Listen struct {
	Key     string        `secret:"" env:"VERIFYD_API_KEY" required:"" placeholder:"vfytest_…" help:"The test key; its variable keeps it out of the shell's history."`
	Forward string        `required:"" placeholder:"URL" help:"Address to forward callbacks to, for example http://localhost:3000/hook."`
	BaseURL string        `name:"base-url" default:"http://localhost:8080" help:"{base_url} of the service."`
	Timeout time.Duration `default:"8s" help:"How long the program may take; less than the service's VERIFYD_CALLBACK_TIMEOUT."`
}

// Run listens until it is stopped, and connects again by itself. It fails if the service refuses.
func (l Listen) Run(ctx context.Context, c command.Console) error {
	to, err := url.Parse(l.Forward)
	if err != nil || to.Host == "" || to.Scheme != "http" && to.Scheme != "https" || to.User != nil {
		return config.Usage(errors.New(
			"--forward is not an address to forward to; for example http://localhost:3000/hook"))
	}
	if l.Timeout < time.Second || l.Timeout > time.Minute {
		return config.Usage(fmt.Errorf("--timeout: %s is out of range; use 1s to 1m, for example 8s",
			l.Timeout))
	}
	cl, err := client.New(l.BaseURL, l.Key, client.WithUserAgent("verifyd-listen/"+version.Text()))
	if err != nil {
		return config.Usage(fmt.Errorf("--base-url or --key: %w", err))
	}
	f := newForwarder(to, l.Timeout, c.Out)
	defer f.close()
	for pause := listenAgain; ; {
		err := cl.Listen(ctx, func() {
			pause = listenAgain
			f.say("Listening. Callbacks of this test key's sessions at %s go to %s; press Ctrl-C to stop.",
				l.BaseURL, to.Redacted())
		}, f.forward)
		if ctx.Err() != nil {
			return nil
		}
		if refused, ok := errors.AsType[*client.Error](err); ok && refused.Code != "" &&
			refused.Status < 500 && refused.Status != 429 {
			return refused
		}
		f.say("Not listening: %v. Trying again in %s; until then callbacks go to their callback_url.", err,
			pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
		pause = min(2*pause, maxListenAgain)
	}
}

// forwardedBytes of an answer are read, and reported to the service for people to see.
const forwardedBytes = 1 << 10

// forwarder POSTs callbacks to a program on this machine and reports to the service how each ended.
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
		// A new connection each time, HTTP/1.1, and no redirect: net/http repeats a request by itself on
		// connections that it keeps.
		Transport: &http.Transport{
			DisableKeepAlives: true, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
			TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12},
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
		f.say("%s  not sent: %s; the service tries again", id, o.Detail)
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
		f.say("%s  the result could not be reported: %v", id, err)
	}
}

// post makes the one POST.
func (f *forwarder) post(ctx context.Context, l client.Listened) client.Outcome {
	var sent atomic.Bool // from the connection on, it may be
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { sent.Store(true) },
	})
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, f.to.String(), bytes.NewReader(l.Body))
	if err != nil {
		return client.Outcome{Detail: "the address to forward to cannot be used"}
	}
	r.Header = l.Header.Clone()
	r.GetBody = nil // a body that cannot be read again is not sent again
	response, err := f.http.Do(r)
	if err != nil {
		return client.Outcome{Sent: sent.Load(), Detail: f.why(err, sent.Load())}
	}
	defer func() { _ = response.Body.Close() }()
	// the status decides; the rest is for people
	body, _ := io.ReadAll(io.LimitReader(response.Body, forwardedBytes))
	return client.Outcome{
		Sent: true, Status: response.StatusCode, Body: strings.ToValidUTF8(string(body), "\uFFFD"),
	}
}

// why returns in short why there was no answer.
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

// plainText escapes text from the network for a terminal.
func plainText(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}
