package client_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"verifyd/edge/client"
)

// died is a service of which one edge died during the first request: for five seconds the others report that
// it is in progress.
type died struct {
	began time.Time
}

func (d *died) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := func(status int, body string) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{"Retry-After": {"1"}},
			Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	}
	switch {
	case d.began.IsZero():
		d.began = time.Now()
		return nil, io.ErrUnexpectedEOF
	case time.Since(d.began) < 5*time.Second:
		return answer(http.StatusConflict, `{"code":"idempotency_in_progress"}`)
	}
	return answer(http.StatusOK,
		`{"verify_url":"https://v.example/?session=s","session":"s","expires_at":"2026-11-21T20:12:28.436Z"}`)
}

func TestStartOutlastsAnEdgeThatDiedWithinIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := client.New("https://verify.example.com", apiKey, client.WithHTTPClient(&http.Client{
			Transport: &died{},
		}))
		if err != nil {
			t.Fatal(err)
		}
		if s, err := c.Start(t.Context(), client.Verification{IdempotencyKey: "k"}); err != nil ||
			s.Session != "s" {
			t.Errorf("%+v, %v", s, err)
		}
	})
}
