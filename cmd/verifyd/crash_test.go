package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"verifyd/cmd/verifyd/demo"
	"verifyd/edge/devnetwork"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/natstest/prove"
	"verifyd/natsconf/secretbox"
)

// child is verifyd in a process of its own, to be killed.
type child struct {
	dir, listen, admin string
	natsURL            string // of its store on a cluster
	inbox              *inbox
	issuer             *devnetwork.Provider // outlives the process, as a real identity network does
	exe                string               // the binary; empty: this one
	argv, env          []string
	args               []string                       // after argv
	up                 func(ctx context.Context) bool // says that it is ready

	cmd    *exec.Cmd
	exited chan error    // closed, after its exit was reported, when the process is gone
	gone   chan struct{} // closed then too
	log    *buffer
	stderr *os.File // gets the log instead; nil: log does
}

// newChild prepares a process with its own data directory and ports that it keeps over restarts.
func newChild(t *testing.T) *child {
	t.Helper()
	c := &child{
		dir: t.TempDir(), inbox: newInbox(t), log: &buffer{}, listen: natstest.Address(t),
		admin: natstest.Address(t),
	}
	caFile := filepath.Join(c.dir, "ca.pem")
	if err := os.WriteFile(caFile, c.inbox.ca.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	c.issuer = serveIssuer(t, c.base())
	c.env = []string{
		childVariable + "=1", "VERIFYD_LISTEN=" + c.listen, "VERIFYD_ADMIN_LISTEN=" + c.admin,
		"VERIFYD_CALLBACK_CA_FILE=" + caFile, "VERIFYD_CALLBACK_ALLOW_CIDRS=127.0.0.0/8",
		"VERIFYD_LOG_LEVEL=trace", "VERIFYD_LOG_FORMAT=json",
		"VERIFYD_NETWORK_ISSUER=" + c.issuer.Issuer(), "VERIFYD_NETWORK_NAME=Example Network",
		"VERIFYD_NETWORK_CLIENT_ID=" + c.issuer.Settings().ClientID,
		"VERIFYD_NETWORK_CLIENT_SECRET=" + c.issuer.Settings().ClientSecret,
		"VERIFYD_CALLBACK_TIMEOUT=1m", // a slow handshake or answer is no other outcome
	}
	if natstest.OnCluster() {
		c.env = append(c.env, "VERIFYD_SECRET_KEY="+secretbox.NewKey().Encode())
	}
	c.ownStore(t)
	c.argv = []string{"serve", "--base-url", c.base()}
	c.up = c.readyz
	return c
}

const (
	// briefTime is a callback's time where a test waits for its end, in the environment briefly: an attempt
	// whose owner is killed is settled after it. An answer that it cuts off is unknown, which these tests
	// allow or want.
	briefTime = 5 * time.Second
	briefly   = "VERIFYD_CALLBACK_TIMEOUT=5s"
)

// ownStore makes the process use the store of its directory.
func (c *child) ownStore(t *testing.T) {
	t.Helper()
	c.env = append(slices.Clone(c.env), "VERIFYD_DATA_DIR="+filepath.Join(c.dir, "store"))
	if natstest.OnCluster() {
		c.natsURL = natstest.ClusterURL(t, c.dir)
		c.env = append(c.env, "VERIFYD_NATS_URL="+c.natsURL)
	}
}

func (c *child) binary() string {
	if c.exe != "" {
		return c.exe
	}
	return os.Args[0]
}

func (c *child) base() string { return "http://" + c.listen }

// serveIssuer runs the dev network outside the process under test.
func serveIssuer(t *testing.T, base string) *devnetwork.Provider {
	t.Helper()
	p := must[*devnetwork.Provider](t)(devnetwork.New(devnetwork.Config{
		RedirectURIs: []string{base + "/signin/default/callback"},
	}))
	if err := p.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = p.Serve(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return p
}

// start runs the process until it is ready.
func (c *child) start(t *testing.T) {
	t.Helper()
	c.launch(t)
	ctx, cancel := context.WithTimeout(t.Context(), natstest.TestTimeout)
	defer cancel()
	if !c.becomesReady(ctx) {
		t.Fatalf("the process does not become ready:\n%s", c.log)
	}
}

func (c *child) launch(t *testing.T) {
	t.Helper()
	if err := c.run(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.kill()
		if raced := c.log.String(); strings.Contains(raced, "DATA RACE") {
			t.Errorf("the process raced:\n%s", raced)
		}
		if c.exe == "" { // 0.9.0 shows them
			noZeroTime(t, "the log", c.log.String())
		}
	})
}

func (c *child) run() error {
	c.cmd = exec.Command(c.binary(), append(slices.Clone(c.argv), c.args...)...)
	c.cmd.Env = append(os.Environ(), c.env...)
	c.cmd.Stdout, c.cmd.Stderr = c.log, c.log
	if c.stderr != nil {
		c.cmd.Stderr = c.stderr
	}
	ended, err := startTied(c.cmd)
	if err != nil {
		return err
	}
	c.exited, c.gone = make(chan error, 1), make(chan struct{})
	go func(exited chan error, gone chan struct{}) {
		exited <- <-ended
		close(exited)
		close(gone)
	}(c.exited, c.gone)
	return nil
}

// becomesReady waits until the process is ready. It returns false if the process or ctx ends instead.
func (c *child) becomesReady(ctx context.Context) bool {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !c.up(ctx) {
		select {
		case <-tick.C:
		case <-c.gone:
			return false
		case <-ctx.Done():
			return false
		}
	}
	return true
}

func (c *child) readyz(ctx context.Context) bool {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.admin+"/readyz", nil)
	if err != nil {
		return false
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(q)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// kill is kill -9: the process learns nothing of it.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	for range c.exited { // until it is closed
	}
}

// end waits until the process has ended by itself, and returns how it did.
func (c *child) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-c.exited:
		return err
	case <-time.After(natstest.TestTimeout):
		t.Fatalf("the process goes on:\n%s", c.log)
		return nil
	}
}

func (c *child) restart(t *testing.T) {
	t.Helper()
	c.kill()
	c.start(t)
}

// command runs another verifyd command on the same data directory.
func (c *child) command(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	cmd := exec.Command(c.binary(), args...)
	cmd.Env = append(os.Environ(), c.env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := runTied(cmd); err != nil {
		return stdout.String(), errors.New(stderr.String())
	}
	return strings.TrimSpace(stdout.String()), nil
}

// accountExists is how a command refuses a name that an account has, as this build says it and as 0.9.0 did.
var accountExists = regexp.MustCompile(`already exists|exists already`)

// makeKey creates an API key, and its account if it is missing.
func (c *child) makeKey(t *testing.T, account string, args ...string) string {
	t.Helper()
	_, err := c.command(t, "account", "create", account, "--new-store")
	if err != nil && !accountExists.MatchString(err.Error()) {
		t.Fatal(err)
	}
	return must[string](t)(c.command(t, append([]string{"key", "create", "--account", account}, args...)...))
}

// walk is one session from init to the callback, with a name for each point between two steps.
type walk struct {
	c       *child
	api     api
	browser *demo.Browser
	session demo.Started
	at      *demo.Page
	back    string // the provider's return, not yet followed
}

// steps in their order; a crash may fall after each of them.
var steps = []struct {
	name string
	do   func(t *testing.T, w *walk)
}{
	{"init", func(t *testing.T, w *walk) {
		w.session = w.api.init(t, map[string]any{
			"platform": "p", "platform_user_id": "u", "callback_url": w.c.inbox.CallbackURL(),
		})
	}},
	{"page opened", func(t *testing.T, w *walk) {
		w.at = must[*demo.Page](t)(w.browser.Open(t.Context(), w.session.VerifyURL))
	}},
	{"continue pressed", func(t *testing.T,
		w *walk) {
		w.at = must[*demo.Page](t)(w.browser.Press(t.Context(), w.at, "default"))
	}},
	{"signed in at the provider", func(t *testing.T, w *walk) {
		w.back = must[string](t)(w.browser.Begin(t.Context(), w.at, "sign-in"))
	}},
	{"verified", func(t *testing.T, w *walk) {
		w.at = must[*demo.Page](t)(w.browser.Open(t.Context(), w.back))
		expectTitle(t, w.at, http.StatusOK, "You are verified")
	}},
}

// skipKills leaves a test that starts many processes, and kills them, to the proof "kills".
func skipKills(t *testing.T) {
	t.Helper()
	prove.Only(t, "kills", "it starts and kills many processes")
}

// The process is killed between any two steps and started again on its data: the user goes on where they
// were, and the outcome is delivered by one POST.
func TestKillBetweenAnyTwoSteps(t *testing.T) {
	skipKills(t)
	t.Parallel()
	for crash := range steps {
		t.Run("after "+steps[crash].name, func(t *testing.T) {
			t.Parallel()
			c := newChild(t)
			if crash == len(steps)-1 { // its callback may be under way
				c.env = append(c.env, briefly)
			}
			c.start(t)
			key := c.makeKey(t, "Harbor Guild")
			w := &walk{c: c, api: api{base: c.base(), key: key}, browser: demo.NewBrowser()}
			w.api.knownSoon(t)
			for i, s := range steps {
				s.do(t, w)
				if i == crash {
					c.restart(t)
				}
			}
			v := w.api.settled(t, w.session.Session)
			if v.State != "verified" {
				t.Errorf("session is %s", v.State)
			}
			n := c.inbox.count(v.ID)
			if crash < len(steps)-1 && (n != 1 || v.Delivery.State != "delivered") || n > 1 ||
				v.Delivery.State == "delivered" && n != 1 {
				t.Errorf("%d POSTs, delivery %s", n, v.Delivery.State)
			}
		})
	}
}

// untilPosted starts the process and walks a user to the end. It comes back when the receiver has the POST.
func (c *child) untilPosted(t *testing.T) *walk {
	t.Helper()
	c.start(t)
	key := c.makeKey(t, "Harbor Guild")
	w := &walk{c: c, api: api{base: c.base(), key: key}, browser: demo.NewBrowser()}
	w.api.knownSoon(t)
	for _, s := range steps {
		s.do(t, w)
	}
	<-c.inbox.got
	return w
}

// The process dies while the receiver has the POST and has not answered: its end cannot be known, so it is
// reported as unknown, and it is not sent again.
func TestKillBetweenPostAndAnswerIsUnknown(t *testing.T) {
	t.Parallel()
	c := newChild(t)
	c.env = append(c.env, briefly)
	defer c.inbox.keepWaiting()()
	w := c.untilPosted(t)
	c.restart(t)
	v := w.api.until(t, w.session.Session, "unknown")
	if n := c.inbox.count(v.ID); n != 1 {
		t.Errorf("%d POSTs", n)
	}
}

// knownSoon waits until a key that another process created is mirrored.
func (a api) knownSoon(t *testing.T) {
	t.Helper()
	natstest.Await(t, "the key is known", func() bool {
		status, _, _ := a.call(t, http.MethodGet, "/sessions/"+strings.Repeat("a", 32), "")
		return status == http.StatusNotFound
	})
}

// settled reads a session until its delivery has ended.
func (a api) settled(t *testing.T, session string) receipt {
	t.Helper()
	deadline := time.Now().Add(natstest.TestTimeout)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		v := a.read(t, session)
		if v.ended() {
			return v
		}
		if time.Now().After(deadline) {
			t.Fatalf("delivery stays %s", v.Delivery.State)
		}
		<-tick.C
	}
}

// left adds every file of the store to what a process leaves behind, also where links lead out of its folder.
// On a cluster there is none.
func (c *child) left(t *testing.T, places map[string]string) map[string]string {
	t.Helper()
	if natstest.OnCluster() {
		return places
	}
	var visit func(path string, d fs.DirEntry, err error) error
	visit = func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return ignoreMissing(err) // another process removes what this one staged in memory
		}
		if d.Type()&fs.ModeSymlink != 0 {
			if path, err = filepath.EvalSymlinks(path); err != nil {
				return ignoreMissing(err)
			}
			return filepath.WalkDir(path, visit)
		}
		b, err := os.ReadFile(path)
		places[path] = string(b)
		return ignoreMissing(err)
	}
	if err := filepath.WalkDir(filepath.Join(c.dir, "store"), visit); err != nil || len(places) < 10 {
		t.Fatalf("%d places to look at: %v", len(places), err)
	}
	return places
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
