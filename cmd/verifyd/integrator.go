package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"verifyd/dispatcher/callback/localca"
	"verifyd/edge/client"
)

const (
	callbackPath = "/callback"
	// callbackBytes is far more than the contract's three fields can take.
	callbackBytes = 64 << 10
)

// integrator is the demo's sample integrator: it starts sessions as a chat bot would, and receives callbacks over real https.
type integrator struct {
	base   string // {base_url} of the service
	shown  string // origin under which a TLS proxy shows the receiver; empty: its own address
	apiKey string
	desk   *client.Receiver // takes callbacks once the signing secret is known

	listener net.Listener
	server   *http.Server
	received chan received
}

// received is one callback as it came in.
type received struct {
	header http.Header
	body   []byte
	result client.Result
	answer string // what the receiver said, where it did not take the callback
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
	return receiveAt(l), nil
}

func receiveAt(l net.Listener) *integrator {
	i := &integrator{listener: l, received: make(chan received, 16)}
	i.server = &http.Server{Handler: http.HandlerFunc(i.receive), ReadTimeout: 10 * time.Second}
	return i
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
func (i *integrator) enroll(base, apiKey, signingSecret string) (err error) {
	i.base, i.apiKey = base, apiKey
	i.desk, err = client.NewReceiver([]string{signingSecret}, func(ctx context.Context, r client.Result) error {
		if got, ok := ctx.Value(receivedKey{}).(*received); ok {
			got.result = r
		}
		return nil
	}, client.WithTests())
	return err
}

func (i *integrator) callbackURL() string {
	return cmp.Or(i.shown, "https://"+i.listener.Addr().String()) + callbackPath
}

// receivedKey finds, in a request's context, the received that the demo shows.
type receivedKey struct{}

// receive lets the client's Receiver judge a callback, and keeps what came in and what was said to it, to be shown.
func (i *integrator) receive(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, callbackBytes))
	if err != nil || r.URL.Path != callbackPath {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	got := &received{header: r.Header, body: body}
	r = r.WithContext(context.WithValue(r.Context(), receivedKey{}, got))
	r.Body = io.NopCloser(bytes.NewReader(body))
	said := &overheard{ResponseWriter: w}
	i.desk.ServeHTTP(said, r)
	if said.status != http.StatusOK {
		got.answer = said.words.String()
	}
	i.received <- *got
}

// overheard keeps a copy of an answer.
type overheard struct {
	http.ResponseWriter

	status int
	words  bytes.Buffer
}

func (o *overheard) WriteHeader(status int) {
	o.status = status
	o.ResponseWriter.WriteHeader(status)
}

func (o *overheard) Write(b []byte) (int, error) {
	o.words.Write(b)
	return o.ResponseWriter.Write(b)
}

// started is the answer of POST /verify/init (contract §2.1).
type started = client.Started

// start starts a session for a user.
func (i *integrator) start(ctx context.Context, user string) (started, error) {
	return i.startFor(ctx, user, i.callbackURL())
}

func (i *integrator) startFor(ctx context.Context, user, callbackURL string) (started, error) {
	h := &http.Client{Timeout: browserTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	c, err := client.New(i.base, i.apiKey, client.WithHTTPClient(h))
	if err != nil {
		return started{}, err
	}
	s, err := c.Start(ctx, client.Verification{
		Platform: "demo chat", PlatformUserID: user, GuildID: "118203948571029384", CallbackURL: callbackURL,
	})
	if err != nil {
		return s, fmt.Errorf("POST /verify/init: %w", err)
	}
	return s, nil
}
