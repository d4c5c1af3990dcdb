package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"verifyd/edge/client/baseurl"
)

const (
	// maxAnswerBytes is far more than any answer of the service.
	maxAnswerBytes = 1 << 20
	// defaultTimeout bounds a call. It is longer than the longest that Wait lets the service hold an answer.
	defaultTimeout = 45 * time.Second
)

// Client calls the service with one API key. It is safe for concurrent use.
type Client struct {
	base   string // without a final slash
	apiKey string
	http   http.Client
	agent  string
	pause  func(ctx context.Context, d time.Duration) error
}

// Option changes what New makes.
type Option func(*Client)

// WithHTTPClient takes transport, time-out and cookie jar from h. Its redirect rule is not taken: no redirect
// is ever followed, since the API key would go along.
func WithHTTPClient(h *http.Client) Option { return func(c *Client) { c.http = *h } }

// WithUserAgent sets the User-Agent field, for example "harbor-bot/1.4". Default "verifyd-client".
func WithUserAgent(agent string) Option { return func(c *Client) { c.agent = agent } }

// New makes a client for the service at baseURL, for example "https://verify.example.com"; a path prefix is
// kept. apiKey begins with "vfy_" or "vfytest_". The error says which of the two is of no use, and why.
func New(baseURL, apiKey string, options ...Option) (*Client, error) {
	base, err := baseurl.Parse(baseURL, "API key")
	if err != nil {
		return nil, err
	}
	if apiKey == "" || strings.ContainsFunc(apiKey, isInvisible) {
		return nil, errors.New("the API key is empty or holds spaces or control characters; it is one " +
			"word that begins with vfy_ or vfytest_")
	}
	c := &Client{
		base: base, apiKey: apiKey, http: http.Client{Timeout: defaultTimeout}, agent: "verifyd-client",
		pause: pause,
	}
	for _, o := range options {
		o(c)
	}
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c, nil
}

func isInvisible(r rune) bool { return r <= ' ' || r >= 0x7f }

// call makes one request and decodes its answer into out, if that is not nil. Errors are an *Error where the
// service answered, and *NoAnswer otherwise.
func (c *Client) call(ctx context.Context, method, path string, header http.Header, in, out any) error {
	r, err := c.request(ctx, method, path, in)
	if err != nil {
		return err
	}
	maps.Copy(r.Header, header)
	return c.do(r, out)
}

// request makes a request that says who asks.
func (c *Client) request(ctx context.Context, method, path string, in any) (*http.Request, error) {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
		body = bytes.NewReader(data)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	r.Header.Set("Authorization", "Bearer "+c.apiKey)
	r.Header.Set("User-Agent", c.agent)
	r.Header.Set("Accept", "application/json, application/problem+json")
	if in != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	return r, nil
}

func (c *Client) do(r *http.Request, out any) error {
	response, err := c.http.Do(r)
	if err != nil {
		return &NoAnswer{err: withoutURL(err)}
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes))
	if err != nil {
		return &NoAnswer{err: withoutURL(err)}
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return newError(response, body, time.Now())
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(body, out); err != nil {
		return &NoAnswer{
			err: fmt.Errorf("status %d, but not the JSON that was expected: %w", response.StatusCode, err),
		}
	}
	return nil
}

// withoutURL takes the URL out of an error of net/http: the path may hold a session token, and errors are
// logged.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// NoAnswer says that the service's answer did not arrive, or was not one. The service may have done what it
// was asked all the same.
type NoAnswer struct{ err error }

// Error says what went wrong, without the URL.
func (e *NoAnswer) Error() string {
	if op, ok := errors.AsType[*net.OpError](e.err); ok && op.Op == "dial" {
		return "verifyd was not reached: " + e.err.Error()
	}
	return "verifyd gave no answer: " + e.err.Error()
}

// Unwrap returns the cause, so that errors.Is finds context.DeadlineExceeded.
func (e *NoAnswer) Unwrap() error { return e.err }

// pause waits for d or for the end of ctx, whose error it returns.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
