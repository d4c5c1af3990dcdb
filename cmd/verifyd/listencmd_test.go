package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"verifyd/cmd/verifyd/demo"
	"verifyd/edge/client"
	"verifyd/natsconf/natstest"
)

// testKey creates a test key of the rig's account.
func (r *rig) testKey(t *testing.T) string {
	t.Helper()
	return r.enrollTest(t).key
}

// verify signs in as the user of a new session of a key.
func (r *rig) verify(t *testing.T, key string) client.Started {
	t.Helper()
	s := must[client.Started](t)(r.newClient(t, key).Start(t.Context(), client.Verification{
		Platform: "chat", PlatformUserID: "sailor_42", GuildID: "118", CallbackURL: r.inbox.CallbackURL(),
	}))
	b := demo.NewBrowser()
	expectTitle(t, must[*demo.Page](t)(b.Press(t.Context(), atProvider(t, b, s.VerifyURL), "sign-in")),
		http.StatusOK, "You are verified")
	return s
}

// listenTo runs verifyd listen until the test ends or stop is called.
func (r *rig) listenTo(t *testing.T, key, forward string) (out *buffer, stop func() int) {
	t.Helper()
	out = &buffer{}
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{
			"listen", "--base-url", r.Base, "--key", key, "--forward", forward, "--timeout", "1m",
		}, out, out)
	}()
	ended := -1
	stop = func() int {
		cancel()
		if ended < 0 {
			ended = <-code
		}
		return ended
	}
	t.Cleanup(func() { stop() })
	expectText(t, out, "Listening.")
	return out, stop
}

// A developer's own program, without a public address, gets the callbacks of a test key's sessions: signed,
// once, and with a verdict. Callbacks of a live key's sessions still go to their receiver.
func TestListenCommand(t *testing.T) {
	t.Parallel()
	walkListening(t, boot(t))
}

func walkListening(t *testing.T, r *rig) {
	t.Helper()
	results := make(chan client.Result, 4)
	desk := must[*client.Receiver](t)(client.NewReceiver([]string{r.secret},
		func(_ context.Context, got client.Result) error {
			results <- got
			return nil
		}, client.WithTests()))
	var broken atomic.Bool
	program := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if broken.Load() {
			panic(http.ErrAbortHandler)
		}
		desk.ServeHTTP(w, q)
	}))
	t.Cleanup(program.Close)
	key := r.testKey(t)
	out, stop := r.listenTo(t, key, program.URL+"/hook?secret=MARKER")
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("verifyd listen has said:\n%s", out)
		}
	})

	s := r.verify(t, key)
	got := natstest.Receive(t, "the program takes it", results)
	if !got.Verified || !got.Test || got.PlatformUserID != "sailor_42" || got.Session != s.ID() {
		t.Errorf("the program took %+v", got)
	}
	a := api{base: r.Base, key: key}
	if v := a.until(t, s.Session, "delivered"); len(v.Delivery.Attempts) != 1 ||
		r.inbox.countTest(s.ID()) != 0 {
		t.Errorf("%+v, and the receiver got %d", v.Delivery, r.inbox.countTest(s.ID()))
	}
	expectText(t, out, "cbtest_"+s.ID()+"  200 OK")

	broken.Store(true)
	s = r.verify(t, key)
	a.until(t, s.Session, "unknown")
	expectText(t, out, "cbtest_"+s.ID()+"  unknown: ")

	live := r.verify(t, r.apiKey)
	r.api().until(t, live.Session, "delivered")
	if r.inbox.count(live.ID()) != 1 || len(results) != 0 {
		t.Errorf("of a live key the receiver got %d, the program %d", r.inbox.count(live.ID()), len(results))
	}
	if code := stop(); code != 0 {
		t.Errorf("exit %d", code)
	}
	// What is handed to a listener that left a moment ago is unknown: nobody answers for it.
	natstest.Await(t, "the service knows that it has left", func() bool {
		return strings.Contains(r.log.String(), `"route":"/listen",`)
	})
	s = r.verify(t, key)
	if a.until(t, s.Session, "delivered"); r.inbox.countTest(s.ID()) != 1 {
		t.Errorf("with nobody listening the receiver got %d", r.inbox.countTest(s.ID()))
	}
	for _, secret := range []string{key, "whsec_", s.Session} {
		if strings.Contains(out.String(), secret) || strings.Contains(r.log.String(), secret) {
			t.Errorf("a secret is printed: %s", out.String())
		}
	}
}

// A program that is not running costs nothing but time: what provably was not sent is sent again.
func TestListenWaitsForTheProgram(t *testing.T) {
	t.Parallel()
	r := boot(t)
	took := make(chan struct{}, 4)
	program := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		took <- struct{}{}
		w.WriteHeader(http.StatusNoContent)
	}))
	program.Listener.Close()
	address := natstest.Address(t)
	key := r.testKey(t)
	out, _ := r.listenTo(t, key, "http://"+address)
	s := r.verify(t, key)
	expectText(t, out, "cbtest_"+s.ID()+"  not sent: ")
	program.Listener = must[net.Listener](t)(net.Listen("tcp", address))
	program.Start()
	t.Cleanup(program.Close)
	natstest.Receive(t, "the program takes it", took)
	a := api{base: r.Base, key: key}
	if v := a.until(t, s.Session, "delivered"); len(v.Delivery.Attempts) < 2 ||
		r.inbox.countTest(s.ID()) != 0 || len(took) != 0 {
		t.Errorf("%+v, the receiver got %d, the program %d more", v.Delivery, r.inbox.countTest(s.ID()),
			len(took))
	}
}

func TestListenIsRefused(t *testing.T) {
	t.Parallel()
	r := boot(t)
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--key", r.apiKey, "--forward", "http://localhost:1"}, exitFailed, "live_key"},
		{[]string{"--key", "vfytest_0", "--forward", "http://localhost:1"}, exitFailed, "key_invalid"},
		{[]string{"--key", "vfytest_0", "--forward", "localhost:1"}, exitUsage, "--forward"},
		{[]string{"--key", "", "--forward", "http://localhost:1"}, exitUsage, "API key"},
		{[]string{"--key", "k", "--forward", "http://localhost:1", "--timeout", "1h"}, exitUsage,
			"--timeout"},
	} {
		code, out, errOut := verifyd(t, append([]string{"listen", "--base-url", r.Base}, c.args...)...)
		if code != c.code || !strings.Contains(errOut, c.says) {
			t.Errorf("%v: exit %d\n%s%s", c.args[3:], code, out, errOut)
		}
	}
}

// The service may go and come back: the command connects again by itself.
func TestListenConnectsAgain(t *testing.T) {
	t.Parallel()
	r := boot(t)
	key := r.testKey(t)
	program := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(program.Close)
	out, _ := r.listenTo(t, key, program.URL)
	r.Kill("public server")
	expectText(t, out, "Not listening: the service ended the listening")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for strings.Count(out.String(), "Listening.") < 2 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal(out.String())
		}
	}
	s := r.verify(t, key)
	expectText(t, out, "cbtest_"+s.ID()+"  204")
}

func expectText(t *testing.T, b *buffer, text string) {
	t.Helper()
	if said := awaitText(t.Context(), b, text); !strings.Contains(said, text) {
		t.Fatalf("it never says %q:\n%s", text, said)
	}
}
