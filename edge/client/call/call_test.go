package call

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// answers is a service's side of a connection: it counts the requests, and gives each the same answer.
type answers struct {
	status int
	body   string
	err    error
	keys   []string
	after  string // a Retry-After
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	a.keys = append(a.keys, r.Header.Get("Idempotency-Key"))
	if a.err != nil {
		return nil, a.err
	}
	body := io.NopCloser(strings.NewReader(a.body))
	header := http.Header{"Retry-After": {a.after}}
	return &http.Response{StatusCode: a.status, Header: header, Body: body, Request: r}, nil
}

// What may pass is tried six times, under one key, and what stays as it is once.
func TestCreateTriesAgainWhatMayPass(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answers

		tries int
	}{
		"no answer":               {answers{err: io.ErrUnexpectedEOF}, 6},
		"not JSON":                {answers{status: 200, body: "<html>"}, 6},
		"another's 502":           {answers{status: 502, body: "<html>"}, 6},
		"unavailable":             {answers{status: 503, body: `{"code":"unavailable"}`}, 6},
		"in progress":             {answers{status: 409, body: `{"code":"idempotency_in_progress"}`}, 6},
		"a conflict":              {answers{status: 409, body: `{"code":"account_exists"}`}, 1},
		"a failure":               {answers{status: 500, body: `{"code":"internal"}`}, 1},
		"a certificate":           {answers{err: &tls.CertificateVerificationError{Err: errors.New("x")}}, 1},
		"its caller has gone":     {answers{err: context.Canceled}, 1},
		"it was made":             {answers{status: 201, body: `{}`}, 1},
		"a redirect, not allowed": {answers{status: 307}, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, err := New("https://verify.example.com", Secret{Text: "vfyop_x"})
			if err != nil {
				t.Fatal(err)
			}
			s.Use(&http.Client{Transport: &c.answers})
			err = s.Create(t.Context(), "/things", "", struct{}{}, &struct{}{})
			if (err == nil) != (c.status == 201) {
				t.Errorf("%s: %v", name, err)
			}
			if len(c.keys) != c.tries || c.keys[0] == "" || c.keys[0] != c.keys[len(c.keys)-1] {
				t.Errorf("%s: requests with the keys %q, want %d with one key", name, c.keys, c.tries)
			}
		})
	}
}

// A secret is sent only over https, except on loopback.
func TestServersThatAreRefused(t *testing.T) {
	t.Parallel()
	for base, right := range map[string]bool{
		"https://verify.example.com": true, "https://verify.example.com/prefix/": true,
		"http://localhost:8080": true, "http://verify.localhost": true, "http://127.0.0.1": true,
		"http://[::1]:1":            true,
		"http://verify.example.com": false, "http://localhost.example.com": false,
		"verify.example.com":                    false,
		"https://ann:secret@verify.example.com": false, "https://verify.example.com?x": false, "": false,
		"ftp://verify.example.com": false,
	} {
		s, err := New(base, Secret{Text: "vfyop_x", Name: "operator token"})
		if (err == nil) != right || err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", base, err)
		}
		if right && strings.HasSuffix(s.base, "/") {
			t.Errorf("the base is %q", s.base)
		}
	}
}

// The service's Retry-After is honoured up to five seconds, and the pauses beside it go on from their own.
func TestPausesBetweenTries(t *testing.T) {
	t.Parallel()
	for after, want := range map[string]time.Duration{
		"":     250*time.Millisecond + 500*time.Millisecond + 1*time.Second + 2*time.Second + 4*time.Second,
		"2":    2*time.Second + 2*time.Second + 2*time.Second + 2*time.Second + 4*time.Second,
		"3600": 25 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			s, err := New("https://verify.example.com", Secret{Text: "vfyop_x"})
			if err != nil {
				t.Fatal(err)
			}
			busy := &answers{status: 503, body: `{"code":"unavailable"}`, after: after}
			s.Use(&http.Client{Transport: busy})
			began := time.Now()
			_ = s.Create(t.Context(), "/things", "", struct{}{}, nil)
			if took := time.Since(began); took != want {
				t.Errorf("with Retry-After %q it took %s, want %s", after, took, want)
			}
		})
	}
}

// A fault that the detail says already is not said twice.
func TestErrorSaysEachFaultOnce(t *testing.T) {
	t.Parallel()
	e := &Error{Status: 400, Code: "invalid_request", Detail: "name: it is too long.", RequestID: "R1",
		Fields: []Field{{Name: "name", Detail: "it is too long"}, {Name: "quota", Detail: "it is no number"},
			{Detail: "it is too long"}}}
	const want = "verifyd answered 400 invalid_request: name: it is too long. quota: it is no number. " +
		"(request R1)"
	if e.Error() != want {
		t.Errorf("it reads %q", e)
	}
}
