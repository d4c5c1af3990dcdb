package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"verifyd/edge/account"
	"verifyd/edge/places"
	"verifyd/edge/problem"
	"verifyd/edge/web"
	"verifyd/natsconf/devtunnel"
	"verifyd/natsconf/natstest"
)

// revocable is a Keys whose keys can all be revoked at once.
type revocable struct {
	keyring
	revoked atomic.Bool
}

func (k *revocable) Lookup(secret string) (account.Principal, error) {
	if k.revoked.Load() {
		return account.Principal{}, account.ErrRevokedKey
	}
	return k.keyring.Lookup(secret)
}

// listenRig is a service with listeners.
type listenRig struct {
	*service
	relay *devtunnel.Relay
	keys  *revocable
}

func newListenRig(t *testing.T, beat time.Duration) *listenRig {
	t.Helper()
	conn := natstest.Start(t)
	r := &listenRig{relay: devtunnel.New(conn), keys: &revocable{keyring: newKeyring()}}
	r.service = newServiceOn(t, conn, func(c *Config) {
		c.Listeners, c.Keys, c.ListenBeat = r.relay, r.keys, beat
	})
	return r
}

// ear is the client's side of POST /listen.
type ear struct {
	lines *bufio.Scanner
	close context.CancelFunc
}

type heard struct {
	Type, ID, Body string
	Headers        map[string]string
}

func listenAt(t *testing.T, address string) *ear {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+pathListen, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+acmeTest)
	transport := &http.Transport{} // the tests' own client reads whole answers, and this one has no end
	t.Cleanup(transport.CloseIdleConnections)
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/x-ndjson" {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	e := &ear{lines: bufio.NewScanner(resp.Body), close: cancel}
	if h := e.next(); h.Type != "ready" {
		t.Fatalf("it begins with %+v", h)
	}
	return e
}

// next returns the next line but beats; the zero value at the end.
func (e *ear) next() (h heard) {
	for e.lines.Scan() {
		h = heard{}
		if json.Unmarshal(e.lines.Bytes(), &h) == nil && h.Type != "beat" {
			return h
		}
	}
	return heard{}
}

// hand passes a callback to a listener, as a dispatcher does, and returns how it ended.
func (r *listenRig) hand(t *testing.T) (ended chan devtunnel.Answer, err chan error) {
	t.Helper()
	ended, err = make(chan devtunnel.Answer, 1), make(chan error, 1)
	name, failed := r.relay.Find(t.Context(), "key_test")
	if failed != nil {
		t.Fatal(failed)
	}
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		a, e := r.relay.Hand(ctx, "key_test", name, devtunnel.Callback{
			Headers: map[string]string{"webhook-id": "cb_1"}, Body: "{\"a\":\"ü\u2028\"}",
		})
		ended <- a
		err <- e
	}()
	return ended, err
}

func (r *listenRig) tell(t *testing.T, exchange, key, body string) answer {
	t.Helper()
	return r.do(t, http.MethodPost, "/listen/"+exchange, body, "Authorization", "Bearer "+key, "Content-Type",
		"application/json")
}

func TestListenBringsAndTakes(t *testing.T) {
	t.Parallel()
	r := newListenRig(t, time.Minute)
	e := listenAt(t, r.server.Addr())
	ended, failed := r.hand(t)
	h := e.next()
	if h.Type != "callback" || h.Body != "{\"a\":\"ü\u2028\"}" || h.Headers["webhook-id"] != "cb_1" {
		t.Fatalf("it heard %+v", h)
	}
	const good = `{"sent":true,"status":204,"detail":"","body":"ok"}`
	wantProblem(t, r.tell(t, h.ID, acmeKey, good), problem.CodeLiveKey)
	wantProblem(t, r.tell(t, h.ID, acmeTest, `{"sent":`), problem.CodeInvalidRequest)
	wantProblem(t, r.tell(t, "AAAAAAAAAAAAAAAAAAAAAAAAAA", acmeTest, good), problem.CodeExchangeOver)
	if a := r.tell(t, h.ID, acmeTest, good); a.status != http.StatusNoContent {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a, err := <-ended, <-failed; err != nil || a != (devtunnel.Answer{
		Sent: true, Status: 204, Body: "ok",
	}) {
		t.Errorf("it ended %+v, %v", a, err)
	}
	wantProblem(t, r.tell(t, h.ID, acmeTest, good), problem.CodeExchangeOver)
}

func TestListenIsForTestKeys(t *testing.T) {
	t.Parallel()
	r := newListenRig(t, time.Minute)
	for key, code := range map[string]problem.Code{
		acmeKey: problem.CodeLiveKey, revokedKey: problem.CodeKeyInvalid, "": problem.CodeKeyMissing,
	} {
		wantProblem(t, r.do(t, http.MethodPost, pathListen, "", "Authorization", "Bearer "+key), code)
	}
	for range places.Pools.Listeners.Part {
		listenAt(t, r.server.Addr())
	}
	a := r.do(t, http.MethodPost, pathListen, "", "Authorization", "Bearer "+acmeTest)
	if wantProblem(t, a, problem.CodeTooManyListeners); a.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
}

// A key that is revoked while its holder listens gets nothing any more, and what was passed to it was not
// sent.
func TestListenEndsWithItsKey(t *testing.T) {
	t.Parallel()
	r := newListenRig(t, time.Minute)
	e := listenAt(t, r.server.Addr())
	r.keys.revoked.Store(true)
	ended, failed := r.hand(t)
	if h := e.next(); h.Type != "" || e.lines.Err() != nil {
		t.Errorf("it heard %+v, %v", h, e.lines.Err())
	}
	if a, err := <-ended, <-failed; err != nil || a.Sent || a.Detail == "" {
		t.Errorf("it ended %+v, %v", a, err)
	}
	r = newListenRig(t, 10*time.Millisecond)
	e = listenAt(t, r.server.Addr())
	r.keys.revoked.Store(true)
	if h := e.next(); h.Type != "" || e.lines.Err() != nil { // the beat detects it
		t.Errorf("it heard %+v, %v", h, e.lines.Err())
	}
}

// When its listener disconnects, nobody listens any more.
func TestListenEndsWithItsListener(t *testing.T) {
	t.Parallel()
	r := newListenRig(t, time.Minute)
	listenAt(t, r.server.Addr()).close()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for over := time.After(patience); ; {
		if _, err := r.relay.Find(t.Context(), "key_test"); errors.Is(err, devtunnel.ErrNoListener) {
			return
		}
		select {
		case <-tick.C:
		case <-over:
			t.Fatal("it is still taken for a listener")
		}
	}
}

// A server that is told to stop notifies its listeners, and is not held up by them.
func TestListenEndsWithItsServer(t *testing.T) {
	t.Parallel()
	r := newListenRig(t, time.Minute)
	e := listenAt(t, r.server.Addr())
	stopped := make(chan struct{})
	go func() { r.stop(); close(stopped) }()
	if h := e.next(); h.Type != "bye" {
		t.Errorf("it heard %+v", h)
	}
	select {
	case <-stopped:
	case <-time.After(patience):
		t.Fatal("the server does not stop")
	}
	if strings.Contains(r.log.String(), "cut off") {
		t.Error("the server was held up until it cut off who listens:", r.log)
	}
}

// The timeouts of ordinary requests do not end listening.
func TestListenOutlivesTheServersTimeouts(t *testing.T) {
	t.Parallel()
	r := newListenRig(t, 20*time.Millisecond)
	const short = 150 * time.Millisecond
	s, _ := startServer(t, web.ServerConfig{
		Name: "short", Listen: "127.0.0.1:0", Handler: r.server.Handler(), Log: zerolog.Nop(),
		ReadTimeout: short, WriteTimeout: short,
	})
	e := listenAt(t, s.Addr())
	for began := time.Now(); time.Since(began) < 4*short; {
		if !e.lines.Scan() || !strings.Contains(e.lines.Text(), "beat") {
			t.Fatalf("it ended after %s: %q, %v", time.Since(began), e.lines.Text(), e.lines.Err())
		}
	}
}

// faultyListeners fail every call, if a fault is set.
type faultyListeners struct {
	Listeners
	fault *atomic.Pointer[error]
}

func (f faultyListeners) Open(key string) (*devtunnel.Post, error) {
	if err := f.fault.Load(); err != nil {
		return nil, *err
	}
	return f.Listeners.Open(key)
}

func (f faultyListeners) Answer(ctx context.Context, key, exchange string, a devtunnel.Answer) error {
	if err := f.fault.Load(); err != nil {
		return *err
	}
	return f.Listeners.Answer(ctx, key, exchange, a)
}

// walkListen causes the answers of the listeners' routes, except faults.
func walkListen(t *testing.T, w waiter) {
	t.Helper()
	const good = `{"sent":true,"status":204}`
	act := func(path, key, body string) {
		w.do(t, http.MethodPost, path, body, "Authorization", "Bearer "+key)
	}
	for _, path := range []string{pathListen, "/listen/AAAAAAAAAAAAAAAAAAAAAAAAAA"} {
		w.do(t, http.MethodPost, path, good)
		act(path, revokedKey, good)
		act(path, closedKey, good)
		act(path, acmeKey, good)
	}
	act("/listen/AAAAAAAAAAAAAAAAAAAAAAAAAA", acmeTest, good)
	act("/listen/AAAAAAAAAAAAAAAAAAAAAAAAAA", acmeTest, "{")
	act("/listen/AAAAAAAAAAAAAAAAAAAAAAAAAA", acmeTest,
		`{"body":"`+strings.Repeat("x", web.MaxBodyBytes)+`"}`)
	walkListenToItsEnd(t, w)
	e, r := listenAt(t, w.server.Addr()), devtunnel.New(w.conn)
	name, err := r.Find(t.Context(), "key_test")
	if err != nil {
		t.Fatal(err)
	}
	handed := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := r.Hand(ctx, "key_test", name, devtunnel.Callback{})
		handed <- err
	}()
	act("/listen/"+e.next().ID, acmeTest, good)
	if err := <-handed; err != nil {
		t.Error(err)
	}
	for range places.Pools.Listeners.Part - 1 {
		listenAt(t, w.server.Addr())
	}
	act(pathListen, acmeTest, "")
}

// walkListenToItsEnd reads a whole answer, at a server that is told to stop as soon as it begins.
func walkListenToItsEnd(t *testing.T, w waiter) {
	t.Helper()
	s, stop := startServer(t, web.ServerConfig{
		Name: "stopping", Listen: "127.0.0.1:0", Handler: w.server.Handler(), Log: zerolog.Nop(),
	})
	begun := make(chan struct{})
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		GotFirstResponseByte: func() { close(begun) },
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.Addr()+pathListen, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+acmeTest)
	stopped := make(chan struct{})
	go func() { defer close(stopped); <-begun; stop() }()
	if a := send(t, w.client, req); a.status != http.StatusOK ||
		!strings.HasSuffix(a.body, "{\"type\":\"bye\"}\n") {
		t.Errorf("%d %s", a.status, a.body)
	}
	<-stopped
}

// Keys cost nothing: an account with many of them still leaves slots for others, and its refusal says why.
func TestListenersOfOneAccountLeaveRoom(t *testing.T) {
	listeners := places.New(places.Pools.Listeners)
	holder := func(name string, n int) account.Principal {
		return account.Principal{
			Key: account.Key{ID: fmt.Sprintf("key_%s_%d", name, n)}, Account: account.Account{ID: name},
		}
	}
	var releases []func()
	for n := range listeners.Size {
		release, full := acquireListener(listeners, holder("acc_a", n))
		if full != nil {
			if n != listeners.Each || !strings.Contains(full.Detail, "account") {
				t.Errorf("after %d: %s", n, full.Detail)
			}
			break
		}
		releases = append(releases, release)
	}
	if _, full := acquireListener(listeners, holder("acc_b", 0)); full != nil {
		t.Errorf("another account: %s", full.Detail)
	}
	for _, release := range releases {
		release()
	}
	for n := range listeners.Size { // one is still accepted
		_, full := acquireListener(listeners, holder(fmt.Sprintf("acc_%d", n), 0))
		if (full == nil) != (n < listeners.Size-1) {
			t.Fatalf("after the releases %d more listen: %+v", n, full)
		}
	}
}
