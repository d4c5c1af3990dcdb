package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"verifyd/dispatcher/callback/localca"
)

const (
	callbackPath = "/callback"
	// callbackBytes is far more than the contract's three fields can take.
	callbackBytes = 64 << 10
)

// integrator is the demo's sample integrator: it starts sessions as a chat bot would, and receives callbacks over real https.
type integrator struct {
	base   string // {base_url} of the service
	apiKey string
	hook   *standardwebhooks.Webhook

	listener net.Listener
	server   *http.Server
	received chan received
}

// received is one callback as it came in.
type received struct {
	header   http.Header
	body     []byte
	verified error // nil: the signature is the account's
}

// newIntegrator opens the receiver with a certificate of its own authority.
func newIntegrator(ca *localca.Authority) (*integrator, error) {
	cert, err := ca.Issue(localca.Certificate{Hosts: []string{"127.0.0.1"}})
	if err != nil {
		return nil, fmt.Errorf("certificate of the sample integrator: %w", err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12})
	if err != nil {
		return nil, fmt.Errorf("listen as the sample integrator: %w", err)
	}
	i := &integrator{listener: l, received: make(chan received, 16)}
	i.server = &http.Server{Handler: http.HandlerFunc(i.receive), ReadTimeout: 10 * time.Second}
	return i, nil
}

// Serve receives callbacks until ctx ends.
func (i *integrator) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = i.server.Close() })
	defer stop()
	if err := i.server.Serve(i.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("sample integrator: %w", err)
	}
	return ctx.Err()
}

// enroll gives the integrator what it got from the service.
func (i *integrator) enroll(base, apiKey, signingSecret string) error {
	hook, err := standardwebhooks.NewWebhook(signingSecret)
	if err != nil {
		return fmt.Errorf("signing secret: %w", err)
	}
	i.base, i.apiKey, i.hook = base, apiKey, hook
	return nil
}

func (i *integrator) callbackURL() string {
	return "https://" + i.listener.Addr().String() + callbackPath
}

func (i *integrator) receive(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, callbackBytes))
	if err != nil || r.Method != http.MethodPost || r.URL.Path != callbackPath {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	got := received{header: r.Header, body: body, verified: i.hook.Verify(body, r.Header)}
	if got.verified != nil {
		w.WriteHeader(http.StatusUnauthorized)
	} else {
		w.WriteHeader(http.StatusNoContent)
	}
	i.received <- got
}

// started is the answer of POST /verify/init (contract §2.1).
type started struct {
	VerifyURL string    `json:"verify_url"`
	Session   string    `json:"session"`
	ExpiresAt time.Time `json:"expires_at"`
}

// start calls POST /verify/init for a user.
func (i *integrator) start(ctx context.Context, user string) (s started, answer []byte, err error) {
	return i.startFor(ctx, user, i.callbackURL())
}

func (i *integrator) startFor(ctx context.Context, user, callbackURL string) (s started, answer []byte, err error) {
	body, err := json.Marshal(map[string]string{
		"platform": "demo chat", "platform_user_id": user, "guild_id": "118203948571029384", "callback_url": callbackURL,
	})
	if err != nil {
		return s, nil, fmt.Errorf("encode: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, i.base+"/verify/init", bytes.NewReader(body))
	if err != nil {
		return s, nil, fmt.Errorf("make the request: %w", err)
	}
	r.Header.Set("Authorization", "Bearer "+i.apiKey)
	r.Header.Set("Content-Type", "application/json")
	client := &http.Client{Timeout: browserTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(r)
	if err != nil {
		return s, nil, fmt.Errorf("POST /verify/init: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if answer, err = io.ReadAll(io.LimitReader(response.Body, pageBytes)); err != nil {
		return s, nil, fmt.Errorf("POST /verify/init: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return s, answer, fmt.Errorf("POST /verify/init: %s: %s", response.Status, answer)
	}
	if err := json.Unmarshal(answer, &s); err != nil {
		return s, answer, fmt.Errorf("POST /verify/init: %w", err)
	}
	return s, answer, nil
}
