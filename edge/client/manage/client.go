package manage

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"verifyd/edge/client/baseurl"
)

const (
	// maxAnswerBytes is far more than any answer of the service.
	maxAnswerBytes = 4 << 20
	// timeout is longer than a service waits for its store.
	timeout = 45 * time.Second
)

// Client calls a service with one operator token. It is safe for concurrent use.
type Client struct{ server }

// server is a service as a client reaches it.
type server struct {
	base, token string
	http        http.Client
}

// New makes a client for the service at baseURL, for example "https://verify.example.com"; a path prefix is
// kept. token begins with "vfyop_". Transport and time-out are taken from h; nil: the default. The error says
// which of them is of no use, and why.
func New(baseURL, token string, h *http.Client) (*Client, error) {
	base, err := baseurl.Parse(baseURL, "operator token")
	if err != nil {
		return nil, err
	}
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return nil, errors.New("the operator token is empty or holds spaces or control characters; it is " +
			"one word that begins with vfyop_")
	}
	c := &Client{server{base, token, http.Client{Timeout: timeout}}}
	if h != nil {
		c.http = *h
	}
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c, nil
}

const (
	// maxTries of what makes something, all under one idempotency key.
	maxTries = 4
	// pauseBetween two tries, where the service does not say; it doubles.
	pauseBetween = 500 * time.Millisecond
	// maxPause bounds what the service may say.
	maxPause = 5 * time.Second
)

// create is call for what makes something. It is tried again, under one idempotency key, if no answer came or
// the service asks for it: the service then gives the same answer.
func (s *server) create(ctx context.Context, path string, in, out any) error {
	key := rand.Text()
	for try, pause := 1, pauseBetween; ; try, pause = try+1, 2*pause {
		err := s.send(ctx, http.MethodPost, path, key, in, out)
		if err == nil || try == maxTries || ctx.Err() != nil ||
			errors.As(err, new(*tls.CertificateVerificationError)) { // which stays as it is
			return err
		}
		if e, ok := errors.AsType[*Error](err); ok {
			if e.Status != http.StatusServiceUnavailable && e.Code != "idempotency_in_progress" {
				return err
			}
			pause = min(max(pause, e.RetryAfter), maxPause)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// call makes one request and decodes its answer into out. Errors are an *Error where the service answered.
func (s *server) call(ctx context.Context, method, path string, in, out any) error {
	return s.send(ctx, method, path, "", in, out)
}

func (s *server) request(ctx context.Context, method, path string, in any) (*http.Request, error) {
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
	r.Header.Set("Authorization", "Bearer "+s.token)
	r.Header.Set("User-Agent", "verifyd-manage")
	r.Header.Set("Accept", "application/json, application/problem+json")
	if in != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	return r, nil
}

// send makes one request, under an idempotency key where that is not empty.
func (s *server) send(ctx context.Context, method, path, key string, in, out any) error {
	r, err := s.request(ctx, method, path, in)
	if err != nil {
		return err
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	response, err := s.http.Do(r)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // without the URL, which may hold somebody's identity
		}
		return fmt.Errorf("verifyd gave no answer: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes))
	if err != nil {
		return fmt.Errorf("verifyd gave no answer: %w", err)
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return newError(response, answer)
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("verifyd answered %d, but not the JSON that was expected: %w", response.StatusCode,
			err)
	}
	return nil
}

// The codes that a program may want to distinguish; the service's documentation lists all of them.
const (
	CodeScopeMissing    = "scope_missing" // 403: Detail names the scope
	CodeAccountNotFound = "account_not_found"
	CodeAPIKeyNotFound  = "api_key_not_found" //nolint:gosec // no secret
	CodeAccountExists   = "account_exists"    // 409
	CodeStateConflict   = "state_conflict"    // 409: Detail says what has to be changed first
)

// Error is a refusal of the service.
type Error struct {
	Status int // of HTTP
	// Code is what kind of problem it is, as the service's documentation lists them; empty if the answer was
	// no problem document: it came from something in between.
	Code       string
	Detail     string // one sentence about this one
	RequestID  string // under which the service's log knows it
	RetryAfter time.Duration
	Fields     []Field // the faulty members or parameters
}

// Field is what is wrong with one member or parameter of a request.
type Field struct {
	Name   string `json:"field"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// Error returns all of it in one line.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "verifyd answered %d", e.Status)
	if e.Code != "" {
		fmt.Fprintf(&b, " %s", e.Code)
	}
	b.WriteString(": " + e.Detail)
	if len(e.Fields) > 1 {
		for _, f := range e.Fields {
			fmt.Fprintf(&b, " %s: %s.", f.Name, f.Detail)
		}
	}
	if e.RequestID != "" {
		fmt.Fprintf(&b, " (request %s)", e.RequestID)
	}
	return b.String()
}

// newError reads a problem document (RFC 9457 §3), as far as it is one.
func newError(response *http.Response, body []byte) *Error {
	var doc struct {
		Detail    string  `json:"detail"`
		Code      string  `json:"code"`
		RequestID string  `json:"request_id"`
		Errors    []Field `json:"errors"`
	}
	e := &Error{Status: response.StatusCode}
	if seconds, err := strconv.ParseUint(response.Header.Get("Retry-After"), 10, 32); err == nil {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	if err := json.Unmarshal(body, &doc); err != nil || doc.Code == "" {
		e.Detail = "not in the service's own words; look at what is between it and this program"
		if response.Header.Get("Location") != "" {
			e.Detail = "a redirect, which is not followed; is the server's address right?"
		}
		return e
	}
	e.Detail, e.Code, e.RequestID, e.Fields = doc.Detail, doc.Code, doc.RequestID, doc.Errors
	return e
}
