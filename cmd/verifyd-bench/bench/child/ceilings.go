package child

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/julienschmidt/httprouter"

	"verifyd/cmd/verifyd-bench/bench/load"
)

// initInput and initOutput are the contract's two documents (contract §2.1, §2.2).
type (
	initInput struct {
		Platform       string `json:"platform"`
		PlatformUserID string `json:"platform_user_id"`
		GuildID        string `json:"guild_id"`
		CallbackURL    string `json:"callback_url"`
	}
	initOutput struct {
		VerifyURL string `json:"verify_url"`
		Session   string `json:"session"`
		ExpiresAt string `json:"expires_at"`
	}
)

// listening is the part of a child that serves until it is closed, and takes no orders.
type listening func()

func (listening) do(context.Context, Order) (reply, error) { return reply{}, nil }
func (end listening) close()                               { end() }

// newBareHandler serves POST /verify/init without keys, limits, strict parsing, log and store: a router, a
// body, a token.
func newBareHandler(context.Context, Config) (worker, string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", fmt.Errorf("listen: %w", err)
	}
	router := httprouter.New()
	router.POST(load.InitPath, answerInit("http://"+l.Addr().String()))
	server := &http.Server{Handler: router, ReadHeaderTimeout: load.AnswerWithin}
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(l) })
	return listening(func() { _ = server.Close(); wg.Wait() }), l.Addr().String(), nil
}

// answerInit answers an init with a token.
func answerInit(base string) httprouter.Handle {
	return func(w http.ResponseWriter, r *http.Request, _ httprouter.Params) {
		var in initInput
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Platform == "" ||
			in.PlatformUserID == "" || in.CallbackURL == "" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		token := secretText()
		out, _ := json.Marshal(initOutput{
			VerifyURL: base + "/?session=" + token, Session: token,
			ExpiresAt: time.Now().Add(10 * time.Minute).UTC().Format("2006-01-02T15:04:05.000Z"),
		})
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(out)
	}
}

// newPreparedServer answers every request with the same bytes and looks at nothing but the end of its header:
// no server can cost less.
func newPreparedServer(context.Context, Config) (worker, string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", fmt.Errorf("listen: %w", err)
	}
	token := rand.Text() + rand.Text()
	body, err := json.Marshal(initOutput{
		VerifyURL: "http://127.0.0.1:8080/?session=" + token, Session: token,
		ExpiresAt: time.Now().Format(time.RFC3339),
	})
	if err != nil {
		return nil, "", err
	}
	prepared := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n\r\n%s", len(body), body)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go answerPrepared(c, prepared)
		}
	}()
	return listening(func() { _ = l.Close() }), l.Addr().String(), nil
}

// requestBytes holds any request of the generator.
const requestBytes = 8 << 10

// answerPrepared relies on the generator writing each request at once and waiting for its answer.
func answerPrepared(c net.Conn, prepared []byte) {
	defer func() { _ = c.Close() }()
	b := make([]byte, requestBytes)
	for {
		n, err := c.Read(b)
		if err != nil {
			return
		}
		if !bytes.Contains(b[:n], []byte("\r\n\r\n")) {
			return
		}
		if _, err := c.Write(prepared); err != nil {
			return
		}
	}
}

// bareClient posts to the receiver with net/http's client, and stores nothing about it.
type bareClient struct {
	url       string
	transport *http.Transport
	next      atomic.Int64
}

func newBareClient(_ context.Context, c Config) (worker, string, error) {
	b, err := makeBareClient(c)
	return b, "", err
}

func makeBareClient(c Config) (*bareClient, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(c.CA) {
		return nil, errors.New("the receiver's authority is no certificate")
	}
	return &bareClient{url: c.Target, transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		MaxIdleConns:    1024, MaxIdleConnsPerHost: 1024,
	}}, nil
}

func (b *bareClient) close() { b.transport.CloseIdleConnections() }

func (b *bareClient) do(ctx context.Context, o Order) (reply, error) {
	client := &http.Client{Transport: b.transport, Timeout: load.AnswerWithin}
	steps := make([]load.Step, o.Clients)
	for i := range steps {
		steps[i] = func(ctx context.Context) error {
			return b.post(ctx, client, fmt.Sprintf("cb_%032d", b.next.Add(1)))
		}
	}
	return replyOf(load.Closed(ctx, o.Duration, steps)), nil
}

// post sends a callback with the service's own fields and sizes.
func (b *bareClient) post(ctx context.Context, client *http.Client, id string) error {
	const body = `{"platform_user_id":"` + load.PlatformUserID + `","guild_id":"` + load.GuildID +
		`","verified":true}`
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "verifyd/bench")
	r.Header.Set("Webhook-Id", id)
	r.Header.Set("Webhook-Timestamp", "1795266694")
	r.Header.Set("Webhook-Signature", "v1,kJqyeycamCMxtdoI9alETvPKWjw0l4HlmZyl3li46qI=")
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusNoContent {
		return fmt.Errorf("the receiver answered %s", answer.Status)
	}
	return nil
}
