package trace

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
)

// Probe sends the collector a request without spans, which is valid (OTLP 1.x, "OTLP/HTTP Request"). The
// error says why it refused, without its URL and the headers, which may hold secrets, and without the
// collector's own text.
func Probe(ctx context.Context, c Config) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, tracesURL(c), http.NoBody)
	if err != nil {
		return fmt.Errorf("ask the collector: %s", cause(err))
	}
	request.Header.Set("Content-Type", "application/x-protobuf") // the empty message of it has no bytes
	for name, value := range c.Headers {
		request.Header.Set(name, value)
	}
	transport := newTransport(c)
	defer transport.CloseIdleConnections()
	client := http.Client{
		Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
	answer, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("ask the collector: %s", cause(err))
	}
	_ = answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("the collector answers %s to %s",
			strings.TrimSpace(fmt.Sprint(answer.StatusCode, " ", http.StatusText(answer.StatusCode))),
			tracesPath)
	}
	return nil
}

// tracesURL returns where the collector accepts spans.
func tracesURL(c Config) string {
	endpoint := *c.Endpoint
	endpoint.Path = strings.TrimRight(endpoint.Path, "/") + tracesPath
	return endpoint.String()
}

func newTransport(c Config) *http.Transport {
	return &http.Transport{
		TLSClientConfig: &tls.Config{
			RootCAs: c.RootCAs, VerifyConnection: c.VerifyConnection, MinVersion: tls.VersionTLS12,
		},
		IdleConnTimeout: maxIdle, ForceAttemptHTTP2: true,
	}
}
