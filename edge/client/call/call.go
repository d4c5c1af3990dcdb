// Package call makes requests to a service, for its clients. It imports nothing else of verifyd.
//
// The laws: the secret leaves over https only, but for loopback, and follows no redirect; nothing is sent
// twice but by Create, under one idempotency key; and no error holds the secret or the path, in which
// somebody may be named.
package call

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// maxAnswerBytes is far more than any answer of the service.
	maxAnswerBytes = 4 << 20
	// defaultTimeout bounds a request. It is longer than the longest that the service holds an answer, or
	// waits for its store.
	defaultTimeout = 45 * time.Second
)

// Service is a service as a client with one secret reaches it. It is safe for concurrent use.
type Service struct {
	// Agent is the User-Agent field. It is set before the first request.
	Agent string

	base   string // without a final slash
	secret string
	http   http.Client
}

// Secret is what authorizes a client.
type Secret struct {
	Text   string
	Name   string // as errors name it: "API key"
	Begins string // what it begins with: "vfy_ or vfytest_"
}

// New returns the service at baseURL, for example "https://verify.example.com"; a path prefix is kept. The
// error says which of the two is of no use, and why.
func New(baseURL string, s Secret) (*Service, error) {
	base, err := parseBase(baseURL, s.Name)
	if err != nil {
		return nil, err
	}
	if s.Text == "" || strings.ContainsFunc(s.Text, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return nil, fmt.Errorf("the %s is empty or holds spaces or control characters; it is one word that "+
			"begins with %s", s.Name, s.Begins)
	}
	service := &Service{base: base, secret: s.Text}
	service.Use(&http.Client{Timeout: defaultTimeout})
	return service, nil
}

// Use takes transport, time-out and cookie jar from h. Its redirect rule is not taken: no redirect is ever
// followed, since the secret would go along. It is called before the first request.
func (s *Service) Use(h *http.Client) {
	s.http = *h
	s.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
}

// Call makes one request and decodes its answer into out, if that is not nil. Its errors are *Error where the
// service answered, and *NoAnswer otherwise.
func (s *Service) Call(ctx context.Context, method, path string, in, out any) error {
	return s.call(ctx, method, path, "", in, out)
}

const (
	// tries is how often Create tries: an edge that dies within it keeps the others away from its idempotency
	// key for 5 s.
	tries = 6
	// firstPause is the pause before the second try; it doubles with each.
	firstPause = 250 * time.Millisecond
	// maxAsked bounds what a Retry-After can ask for; a caller with more time repeats Create itself.
	maxAsked = 5 * time.Second
)

// Create is Call for a POST that makes something. It tries up to six times within ctx, under one idempotency
// key, while no answer comes, or a 502, 503 or 504, or the answer that an earlier request with the key is in
// progress: the service makes one thing for one key. A certificate that is not accepted stays so, and is not
// tried again. An empty key is replaced by a random one.
func (s *Service) Create(ctx context.Context, path, key string, in, out any) error {
	key = cmp.Or(key, rand.Text())
	for try, pause := 1, firstPause; ; try, pause = try+1, 2*pause {
		err := s.call(ctx, http.MethodPost, path, key, in, out)
		if err == nil || try == tries || !mayPass(err) {
			return err
		}
		wait := pause
		if e, ok := errors.AsType[*Error](err); ok {
			wait = max(wait, min(e.RetryAfter, maxAsked))
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return err // it says more than that the time is over
		}
	}
}

// mayPass reports whether the same request could succeed in a moment.
func mayPass(err error) bool {
	if e, ok := errors.AsType[*Error](err); ok {
		switch e.Status {
		case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return true
		}
		return e.Code == CodeIdempotencyInProgress
	}
	_, ok := errors.AsType[*NoAnswer](err)
	return ok && !errors.Is(err, context.Canceled) && !errors.As(err, new(*tls.CertificateVerificationError))
}

// call makes one request, under an idempotency key where that is not empty.
func (s *Service) call(ctx context.Context, method, path, key string, in, out any) error {
	r, err := s.request(ctx, method, path, in)
	if err != nil {
		return err
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	response, err := s.http.Do(r)
	if err != nil {
		return unanswered(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return refusal(response)
	}
	if out == nil {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes))
	if err != nil {
		return unanswered(err)
	}
	if err := json.Unmarshal(body, out); err != nil {
		return &NoAnswer{
			fmt.Errorf("status %d, but not the JSON that was expected: %w", response.StatusCode, err),
		}
	}
	return nil
}

// Open makes a request whose answer goes on, without the time-out of other requests. The caller closes its
// body. The errors are those of Call.
func (s *Service) Open(ctx context.Context, method, path string) (*http.Response, error) {
	r, err := s.request(ctx, method, path, nil)
	if err != nil {
		return nil, err
	}
	endless := s.http
	endless.Timeout = 0
	response, err := endless.Do(r)
	if err != nil {
		return nil, unanswered(err)
	}
	if response.StatusCode != http.StatusOK {
		defer func() { _ = response.Body.Close() }()
		return nil, refusal(response)
	}
	return response, nil
}

// request makes a request that says who asks.
func (s *Service) request(ctx context.Context, method, path string, in any) (*http.Request, error) {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
		body = bytes.NewReader(data)
	}
	r, err := http.NewRequestWithContext(ctx, method, s.base+path, body)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	r.Header.Set("Authorization", "Bearer "+s.secret)
	r.Header.Set("User-Agent", s.Agent)
	r.Header.Set("Accept", "application/json, application/problem+json")
	if in != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	return r, nil
}

// unanswered takes the URL out of an error of net/http: the path may hold a session token or somebody's
// identity, and errors are logged.
func unanswered(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return &NoAnswer{err}
}
