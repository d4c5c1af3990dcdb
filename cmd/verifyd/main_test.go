package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/demo"
	"verifyd/cmd/verifyd/service"
	"verifyd/dispatcher/callback/localca"
	"verifyd/edge/account"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
)

// childVariable makes this test binary run as verifyd, for tests that need a process to kill.
const childVariable = "VERIFYD_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		dieAt(os.Getenv(crashVariable))
		stopAt(os.Getenv(stopVariable))
		main()
	}
	goleak.VerifyTestMain(natstest.Tests(m))
}

// rig is the real program on port 0 with an embedded store, and a real https receiver.
type rig struct {
	*service.Program
	dir    string
	inbox  *inbox
	apiKey string
	secret string // the account's signing secret
	log    *buffer
	offset atomic.Int64 // moves the program's clock
	stop   func()
}

// boot starts a rig; change may alter the configuration first.
func boot(t *testing.T, change ...func(*config.Config)) *rig {
	t.Helper()
	r := &rig{dir: t.TempDir(), inbox: newInbox(t), log: &buffer{}}
	caFile := filepath.Join(r.dir, "ca.pem")
	if err := os.WriteFile(caFile, r.inbox.ca.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := demo.Config(r.dir, caFile, zerolog.New(r.log).Level(zerolog.TraceLevel))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Listen, cfg.AdminListen = "127.0.0.1:0", "127.0.0.1:0"
	cfg.CallbackTimeout = time.Minute // a slow handshake or answer is no other outcome
	cfg.Now = func() time.Time { return time.Now().Add(time.Duration(r.offset.Load())) }
	if natstest.OnCluster() {
		key := secretbox.NewKey()
		cfg.Store.NATSURL, cfg.Store.Key = natstest.ClusterURL(t, r.dir), &key
		cfg.Store.Topology.Embedded, cfg.Store.Topology.Replicas = false, natstest.Replicas
	}
	for _, c := range change {
		c(&cfg)
	}
	if cfg.Store.NATSURL != "" {
		if err := secretbox.Save(filepath.Join(r.dir, config.SecretFile), *cfg.Store.Key); err != nil {
			t.Fatal(err)
		}
	}
	r.Program = service.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx) }()
	var once sync.Once
	r.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(r.stop)
	select {
	case <-r.Ready:
	case err := <-done:
		done <- nil
		t.Fatal(err)
	case <-t.Context().Done():
	}
	if r.Config.Edge { // a dispatcher has no accounts of its own
		r.apiKey, r.secret = r.enroll(t, "Harbor Guild")
	}
	return r
}

// reach returns the flags with which a command reaches the program's store.
func (r *rig) reach() []string {
	if r.Config.Store.NATSURL == "" {
		return []string{"--data-dir", r.Config.Store.DataDir}
	}
	return []string{
		"--nats-url", r.Config.Store.NATSURL, "--secret-key-file", filepath.Join(r.dir, config.SecretFile),
	}
}

// run runs a command on the program's store.
func (r *rig) run(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	return verifyd(t, append(args, r.reach()...)...)
}

// enroll creates an account and a key, and waits until the program has them.
func (r *rig) enroll(t *testing.T, name string) (apiKey, secret string) {
	t.Helper()
	a, err := r.Store.Accounts.EnsureAccount(t.Context(), operator(), name)
	if err != nil {
		t.Fatal(err)
	}
	apiKey, _, err = r.Store.Accounts.CreateKey(t.Context(), operator(), a.ID, account.KeyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Knows(t.Context(), apiKey); err != nil {
		t.Fatal(err)
	}
	return apiKey, a.Secrets[0].Value
}

// buffer is a log that tests read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// inbox is the integrator's receiver: it counts the POSTs of each callback.
type inbox struct {
	*demo.Integrator
	ca *localca.Authority

	takes time.Duration // how long each answer takes; set before the first POST
	got   chan demo.Received

	mu    sync.Mutex
	posts map[string][]demo.Received // by webhook-id
	hold  chan struct{}              // if set, answers wait for it
	left  int                        // POSTs whose sender left while hold was waited for
	// if set, the first POST of each callback is answered 503 with this Retry-After
	later string
}

func newInbox(t *testing.T) *inbox {
	t.Helper()
	ca, err := localca.New()
	if err != nil {
		t.Fatal(err)
	}
	i, err := demo.NewIntegrator(ca)
	if err != nil {
		t.Fatal(err)
	}
	in := &inbox{
		Integrator: i, ca: ca, posts: map[string][]demo.Received{}, got: make(chan demo.Received, 1000),
	}
	i.Server.Handler = http.HandlerFunc(in.take)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = i.Serve(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return in
}

func (in *inbox) take(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	got := demo.Received{Header: r.Header, Body: body}
	in.mu.Lock()
	id := r.Header.Get("Webhook-Id")
	in.posts[id] = append(in.posts[id], got)
	hold, later, first := in.hold, in.later, len(in.posts[id]) == 1
	in.mu.Unlock()
	in.got <- got
	select {
	case <-time.After(in.takes):
	case <-r.Context().Done():
	}
	if hold != nil {
		select {
		case <-hold:
		case <-r.Context().Done():
			in.mu.Lock()
			in.left++
			in.mu.Unlock()
		}
	}
	if later != "" && first {
		w.Header().Set("Retry-After", later)
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// keepWaiting makes answers wait until the returned function is called.
func (in *inbox) keepWaiting() (answer func()) {
	hold := make(chan struct{})
	in.mu.Lock()
	defer in.mu.Unlock()
	in.hold = hold
	return func() {
		in.mu.Lock()
		defer in.mu.Unlock()
		in.hold = nil
		close(hold)
	}
}

// retryAfter has the first POST of each callback answered 503 with this Retry-After; empty: no longer.
func (in *inbox) retryAfter(seconds string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.later = seconds
}

// waiting returns how many POSTs have come, and how many of them wait for an answer while answers are held.
func (in *inbox) waiting() (came, wait int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, all := range in.posts {
		came += len(all)
	}
	return came, came - in.left
}

func (in *inbox) count(sid string) int { return in.posted("cb_" + sid) }

// countTest is count for a session of a test key.
func (in *inbox) countTest(sid string) int { return in.posted("cbtest_" + sid) }

func (in *inbox) posted(id string) int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.posts[id])
}

// receipt is what GET /sessions/{session} answers.
type receipt struct {
	ID             string `json:"id"`
	Platform       string `json:"platform"`
	PlatformUserID string `json:"platform_user_id"`
	GuildID        string `json:"guild_id"`
	State          string `json:"state"`
	Verified       *bool  `json:"verified"`
	Reason         string `json:"reason"`
	Rule           string `json:"rule"`
	Delivery       struct {
		State    string `json:"state"`
		Attempts []any  `json:"attempts"`
	} `json:"delivery"`
}

// api is an integrator's server against a running verifyd.
type api struct {
	base, key string
}

func (r *rig) api() api { return api{base: r.Base, key: r.apiKey} }

// call makes a request and returns status and body.
func (a api) call(t *testing.T, method, path, body string) (int, http.Header, []byte) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, a.base+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+a.key)
	if body != "" {
		q.Header.Set("Content-Type", "application/json")
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: natstest.TestTimeout}
	response, err := client.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	noZeroTime(t, path, string(b))
	return response.StatusCode, response.Header, b
}

// init starts a session from a JSON body.
func (a api) init(t *testing.T, members map[string]any) demo.Started {
	t.Helper()
	body, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	status, _, answer := a.call(t, http.MethodPost, "/verify/init", string(body))
	if status != http.StatusOK {
		t.Fatalf("init: %d %s", status, answer)
	}
	var s demo.Started
	if err := json.Unmarshal(answer, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// begin starts an ordinary session.
func (r *rig) begin(t *testing.T) demo.Started {
	t.Helper()
	return r.api().init(t, map[string]any{
		"platform": "discord", "platform_user_id": "sailor_42", "guild_id": "118",
		"callback_url": r.inbox.CallbackURL(),
	})
}

// read returns a session as its integrator reads it.
func (a api) read(t *testing.T, session string) receipt {
	t.Helper()
	status, _, body := a.call(t, http.MethodGet, "/sessions/"+session, "")
	if status != http.StatusOK {
		t.Fatalf("read: %d %s", status, body)
	}
	var v receipt
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// until reads a session until its delivery has the state. One that ends in another fails the test: without a
// resend, which makes it due at once, it stays there.
func (a api) until(t *testing.T, session, delivery string) receipt {
	t.Helper()
	return a.untilDespite(t, session, delivery, http.StatusOK)
}

// untilAttempts reads a session until its delivery has the state after so many attempts.
func (a api) untilAttempts(t *testing.T, session, delivery string, attempts int) {
	t.Helper()
	natstest.AwaitValue(t, fmt.Sprintf("the delivery is %s after %d attempts", delivery, attempts),
		func() receipt { return a.read(t, session) }, func(v receipt) bool {
			if v.ended() && len(v.Delivery.Attempts) >= attempts && v.Delivery.State != delivery {
				t.Fatalf("after %d attempts the delivery has ended as %s, want %s", len(v.Delivery.Attempts),
					v.Delivery.State, delivery)
			}
			return v.Delivery.State == delivery && len(v.Delivery.Attempts) == attempts
		})
}

// ended reports whether the delivery is in a final state.
func (v receipt) ended() bool {
	return slices.Contains([]string{"delivered", "rejected", "unknown", "undeliverable"}, v.Delivery.State)
}

// untilDespite is until for reads that may meanwhile get another status.
func (a api) untilDespite(t *testing.T, session, delivery string, also int) receipt {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), natstest.TestTimeout)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		status, _, body := a.call(t, http.MethodGet, "/sessions/"+session, "")
		if status != http.StatusOK && status != also {
			t.Fatalf("read: %d %s", status, body)
		}
		var v receipt
		if err := json.Unmarshal(body, &v); err != nil {
			t.Fatal(err)
		}
		switch {
		case v.Delivery.State == delivery:
			return v
		case v.ended():
			t.Fatalf("session is %s, its delivery has ended as %s, want %s", v.State, v.Delivery.State,
				delivery)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("read: %d: session is %s, delivery %s, want %s", status, v.State, v.Delivery.State,
				delivery)
		}
	}
}

// must fails the test on an error.
func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// atProvider goes to the dev network's page.
func atProvider(t *testing.T, b *demo.Browser, link string) *demo.Page {
	t.Helper()
	p := must[*demo.Page](t)(b.Open(t.Context(), link))
	return must[*demo.Page](t)(b.Press(t.Context(), p, "dev"))
}

// expectTitle checks the heading a user reads.
func expectTitle(t *testing.T, p *demo.Page, status int, title string) {
	t.Helper()
	if p.Status != status || p.Title() != title {
		t.Errorf("page %d %q, want %d %q: %s", p.Status, p.Title(), status, title, p.Text)
	}
}
