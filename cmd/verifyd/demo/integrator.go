package demo

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
	// CallbackPath is where the sample integrator takes callbacks.
	CallbackPath = "/callback"
	// callbackBytes is far more than the contract's three fields can take.
	callbackBytes = 64 << 10
)

// Integrator is the demo's sample integrator: it starts sessions as a chat bot would, and receives callbacks
// over real https.
type Integrator struct {
	Base   string // {base_url} of the service
	shown  string // origin of a TLS proxy in front of the receiver; empty: its own address
	APIKey string
	desk   *client.Receiver // takes callbacks once the signing secret is known

	Listener net.Listener
	Server   *http.Server
	received chan Received
}

// Received is one callback as it came in.
type Received struct {
	Header http.Header
	Body   []byte
	result client.Result
	answer string // the receiver's answer, if it did not accept the callback
}

// NewIntegrator opens the receiver with a certificate of its own authority.
func NewIntegrator(ca *localca.Authority) (*Integrator, error) {
	cert, err := ca.Issue(localca.Certificate{Hosts: []string{"127.0.0.1"}})
	if err != nil {
		return nil, fmt.Errorf("certificate of the sample integrator: %w", err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12,
	})
	if err != nil {
		return nil, fmt.Errorf("listen as the sample integrator: %w", err)
	}
	return receiveAt(l), nil
}

func receiveAt(l net.Listener) *Integrator {
	i := &Integrator{Listener: l, received: make(chan Received, 16)}
	i.Server = &http.Server{Handler: http.HandlerFunc(i.receive), ReadTimeout: 10 * time.Second}
	return i
}

// Serve receives callbacks until ctx ends.
func (i *Integrator) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = i.Server.Close() })
	defer stop()
	if err := i.Server.Serve(i.Listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("sample integrator: %w", err)
	}
	return ctx.Err()
}

// enroll sets the key and the secret that the integrator got from the service.
func (i *Integrator) enroll(base, apiKey, signingSecret string) (err error) {
	i.Base, i.APIKey = base, apiKey
	i.desk, err = client.NewReceiver([]string{signingSecret},
		func(ctx context.Context, r client.Result) error {
			if got, ok := ctx.Value(receivedKey{}).(*Received); ok {
				got.result = r
			}
			return nil
		}, client.WithTests())
	return err
}

// CallbackURL returns where callbacks are to be sent.
func (i *Integrator) CallbackURL() string {
	return cmp.Or(i.shown, "https://"+i.Listener.Addr().String()) + CallbackPath
}

// receivedKey is the key of the Received in a request's context.
type receivedKey struct{}

// receive passes a callback to the client's Receiver, and keeps the callback and the answer, to be shown.
func (i *Integrator) receive(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, callbackBytes))
	if err != nil || r.URL.Path != CallbackPath {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	got := &Received{Header: r.Header, Body: body}
	r = r.WithContext(context.WithValue(r.Context(), receivedKey{}, got))
	r.Body = io.NopCloser(bytes.NewReader(body))
	recorded := &recordedAnswer{ResponseWriter: w}
	i.desk.ServeHTTP(recorded, r)
	if recorded.status != http.StatusOK {
		got.answer = recorded.words.String()
	}
	i.received <- *got
}

// recordedAnswer records a copy of an answer.
type recordedAnswer struct {
	http.ResponseWriter

	status int
	words  bytes.Buffer
}

func (o *recordedAnswer) WriteHeader(status int) {
	o.status = status
	o.ResponseWriter.WriteHeader(status)
}

func (o *recordedAnswer) Write(b []byte) (int, error) {
	o.words.Write(b)
	return o.ResponseWriter.Write(b)
}

// Started is the answer of POST /verify/init (contract §2.1).
type Started = client.Started

// StartFor starts a session for a user, whose callback is sent there.
func (i *Integrator) StartFor(ctx context.Context, user, callbackURL string) (Started, error) {
	return i.start(ctx, user, "", callbackURL)
}

// client calls the service with the integrator's key.
func (i *Integrator) client() (*client.Client, error) {
	h := &http.Client{Timeout: BrowserTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	return client.New(i.Base, i.APIKey, client.WithHTTPClient(h))
}

// confirm confirms a session with a code that a user gave.
func (i *Integrator) confirm(ctx context.Context, s Started, user, code string) error {
	c, err := i.client()
	if err == nil {
		_, err = c.Confirm(ctx, s.Session, user, code)
	}
	return err
}

// start starts a session for a user, which requires a level; empty: the account's.
func (i *Integrator) start(ctx context.Context, user, binding, callbackURL string) (Started, error) {
	c, err := i.client()
	if err != nil {
		return Started{}, err
	}
	s, err := c.Start(ctx, client.Verification{
		Platform: "demo chat", PlatformUserID: user, GuildID: "118203948571029384", CallbackURL: callbackURL,
		DisplayName: "Sailor", GroupName: "Harbor Guild", Binding: binding,
	})
	if err != nil {
		return s, fmt.Errorf("POST /verify/init: %w", err)
	}
	return s, nil
}
