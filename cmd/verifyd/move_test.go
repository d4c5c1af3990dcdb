package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"verifyd/cmd/verifyd/check"
	"verifyd/cmd/verifyd/demo"
	"verifyd/natsconf/crashpoint"
	"verifyd/natsconf/natstest"
)

// moving is a service that is moved while users sign in.
type moving struct {
	*child
	api    api
	target string

	stop   chan struct{} // closed when no more sessions are to begin
	users  sync.WaitGroup
	mu     sync.Mutex
	begun  []demo.Started
	faults []error
}

const (
	// movers is how many users sign in concurrently while a store is moved.
	movers = 6
	// receiverTakes is how long the receiver takes, so that some claim is open at nearly every moment.
	receiverTakes = 400 * time.Millisecond
	// moveAtMost bounds one run of verifyd move in these tests.
	moveAtMost = natstest.TestTimeout
)

func newMoving(t *testing.T) *moving {
	t.Helper()
	c := newChild(t)
	c.inbox.takes = receiverTakes
	c.env = append(c.env, "VERIFYD_RATE_LIMIT=1000/s", "VERIFYD_RATE_BURST=1000", "VERIFYD_LOG_LEVEL=info")
	c.start(t)
	m := &moving{child: c, target: natstest.Bare(t, t.TempDir()), stop: make(chan struct{})}
	m.api = api{base: c.base(), key: c.makeKey(t, "Harbor Guild")}
	m.api.knownSoon(t)
	return m
}

// load makes users sign in, one at a time, until stop is closed. They do not give up while the service is
// down.
func (m *moving) load(t *testing.T) {
	t.Helper()
	m.users.Go(func() {
		for { // nobody waits for one POST
			select {
			case <-m.inbox.got:
			case <-m.stop:
				return
			}
		}
	})
	for range movers {
		m.users.Go(func() {
			for {
				select {
				case <-m.stop:
					return
				default:
				}
				s, ok := m.api.tryInit(t, m.inbox.CallbackURL())
				if !ok {
					select {
					case <-m.stop:
						return
					// the service is down: users pause between requests
					case <-time.After(50 * time.Millisecond):
					}
					continue
				}
				m.mu.Lock()
				m.begun = append(m.begun, s)
				m.mu.Unlock()
				ctx, cancel := context.WithTimeout(t.Context(), userPatience)
				u := loadUser{browser: demo.NewBrowser(), link: s.VerifyURL, turns: make(chan struct{}, 1)}
				err := u.signIn(ctx)
				cancel()
				if err != nil {
					m.mu.Lock()
					m.faults = append(m.faults, err)
					m.mu.Unlock()
				}
			}
		})
	}
}

// move runs verifyd move, which dies at a crash point if one is named.
func (m *moving) move(t *testing.T, crash string, args ...string) (out string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), moveAtMost)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0],
		append([]string{"move", "--to", m.target, "--to-replicas", "1"}, args...)...)
	cmd.Env = append(os.Environ(), m.env...)
	if crash != "" {
		cmd.Env = append(cmd.Env, crashVariable+"="+crash)
	}
	var said buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	err = runTied(cmd)
	return said.String(), err
}

// dies runs a move that is killed at a point.
func (m *moving) dies(t *testing.T, point string, args ...string) {
	t.Helper()
	out, err := m.move(t, point, args...)
	exit, ok := errors.AsType[*exec.ExitError](err)
	if status, isWait := exitStatus(exit); !ok || !isWait || status.Signal() != syscall.SIGKILL {
		t.Fatalf("the move was not killed at %s: %v\n%s", point, err, out)
	}
}

func exitStatus(e *exec.ExitError) (syscall.WaitStatus, bool) {
	if e == nil {
		return 0, false
	}
	s, ok := e.Sys().(syscall.WaitStatus)
	return s, ok
}

// next returns the service on the new store, at the same address.
func (m *moving) next() *child {
	n := *m.child
	n.log = &buffer{}
	n.env = append(append([]string{}, m.env...), "VERIFYD_NATS_URL="+m.target, "VERIFYD_REPLICAS=1",
		"VERIFYD_SECRET_KEY_FILE="+filepath.Join(m.dir, "store", "secret.key"))
	return &n
}

// refuses starts a service that must not start.
func refuses(t *testing.T, c *child, why string) {
	t.Helper()
	out, err := c.command(t, c.argv...)
	if err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("the service started, or gave another reason than %q: %s %v", why, out, err)
	}
}

// The store of a running service is moved to another server while users sign in without a pause, and the move
// is killed at every crash point, and repeated. Neither service starts when it must not, every session has
// one outcome and one POST, and both stores hold the same.
func TestMoveUnderLoadKilledAtEveryPoint(t *testing.T) {
	skipKills(t)
	t.Parallel()
	m := newMoving(t)
	m.load(t)
	m.dies(t, crashpoint.MovePage+":3")
	if out, err := m.move(t, ""); err != nil {
		t.Fatalf("move: %v\n%s", err, out)
	}
	next := m.next()
	next.listen, next.admin = natstest.Address(t), natstest.Address(t) // the old one keeps its own
	next.env = append(next.env, "VERIFYD_LISTEN="+next.listen, "VERIFYD_ADMIN_LISTEN="+next.admin)
	refuses(t, next, "is being filled from")
	for _, point := range []string{
		crashpoint.MoveLeaving, crashpoint.MoveSealed, crashpoint.MoveCompared, crashpoint.MoveLeft,
	} {
		m.dies(t, point+":1", "--finish")
		if point != crashpoint.MoveLeft {
			refuses(t, next, "is being filled from")
		}
	}
	if out, err := m.move(t, "", "--finish"); err != nil {
		t.Fatalf("move --finish: %v\n%s", err, out)
	}
	natstest.Await(t, "the old service no longer counts as ready", func() bool {
		return !m.readyz(t.Context())
	})
	if err := m.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := m.end(t); err != nil {
		t.Errorf("the old service ended with %v", err)
	}
	refuses(t, m.child, "was moved to")
	next = m.next()
	next.start(t)
	if out, err := m.move(t, "", "--finish"); err != nil || !strings.Contains(out, "was finished before") {
		t.Errorf("a move that has ended: %v\n%s", err, out)
	}
	m.begin(t)
	close(m.stop)
	m.users.Wait()
	m.count(t)
}

// A single server keeps one copy of each stream. Whoever wants more reads what to set, from move, serve,
// apply and check; and after a move, a service with the settings that the command prints starts.
func TestMoveToASingleServer(t *testing.T) {
	t.Parallel()
	natstest.NeedsEmbedded(t, "a single server to move to")
	c := newChild(t)
	c.makeKey(t, "Harbor Guild")
	target := natstest.Bare(t, t.TempDir())
	if _, err := c.command(t, "move", "--to", target); err == nil {
		t.Error("three copies are kept by one server")
	} else {
		expect(t, err.Error(), "--to-replicas", "set it to 1 for a single server")
	}
	on := []string{"--nats-url", target, "--secret-key-file", filepath.Join(c.dir, "store", "secret.key")}
	if said := serveFails(t, on...); !strings.Contains(said, "VERIFYD_REPLICAS (--replicas)") {
		t.Errorf("serve: %s", said)
	}
	code, _, said := verifyd(t, append([]string{"apply"}, on...)...)
	if code != exitUsage {
		t.Errorf("apply: exit %d", code)
	}
	expect(t, said, "VERIFYD_REPLICAS (--replicas)", "set it to 1 for a single server")
	code, found := checked(t, on...)
	if expectFound(t, found, "replicas", check.LevelError, "single server"); code != exitFailed {
		t.Errorf("check: exit %d", code)
	}
	m := &moving{child: c, target: target}
	out, err := m.move(t, "", "--finish")
	if err != nil {
		t.Fatalf("move: %v\n%s", err, out)
	}
	settings := regexp.MustCompile(`(?m)^  (VERIFYD_\w+=\S+)$`).FindAllStringSubmatch(out, -1)
	if len(settings) != 3 {
		t.Errorf("the settings are %q in\n%s", settings, out)
	}
	shown := must[*url.URL](t)(url.Parse(target)).Redacted()
	for _, s := range settings {
		c.env = append(c.env, strings.ReplaceAll(s[1], shown, target))
	}
	c.start(t)
	if list := must[string](t)(c.command(t, "account", "list")); !strings.Contains(list, "Harbor Guild") {
		t.Errorf("accounts on the new store:\n%s", list)
	}
}

// A move to a server that says nothing for JetStream reports what it waits for, and ends when it is told to.
func TestMoveToAServerWithoutJetStream(t *testing.T) {
	t.Parallel()
	natstest.NeedsEmbedded(t, "a store of its own to move")
	dir := filepath.Join(t.TempDir(), "store")
	if code, _, said := verifyd(t, "account", "create", "x", "--new-store", "--data-dir", dir); code != 0 {
		t.Fatal(said)
	}
	target := natstest.WithoutJetStream(t)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var out, said buffer
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"move", "--to", target, "--data-dir", dir}, &out, &said)
	}()
	expectText(t, &said, "waiting for the store")
	interrupt()
	if code := natstest.Receive(t, "the end of the command", ended); code != exitFailed {
		t.Errorf("exit %d", code)
	}
	expect(t, said.String(), "JetStream is not available", "the store to move to")
}

// begin waits until sessions are started on the new store.
func (m *moving) begin(t *testing.T) {
	t.Helper()
	m.mu.Lock()
	before := len(m.begun)
	m.mu.Unlock()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(natstest.TestTimeout); ; <-tick.C {
		m.mu.Lock()
		n := len(m.begun)
		m.mu.Unlock()
		if n >= before+movers {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("nobody signs in at the new service")
		}
	}
}

// count checks every session that was acknowledged.
func (m *moving) count(t *testing.T) {
	t.Helper()
	for _, err := range m.faults {
		t.Error(err)
	}
	unknown := 0
	for _, s := range m.begun {
		v := m.api.settled(t, s.Session)
		posts := m.inbox.count(v.ID)
		if v.Delivery.State == "unknown" {
			unknown++
		}
		if v.State != "verified" || posts > 1 || v.Delivery.State == "delivered" && posts != 1 || posts == 0 {
			t.Errorf("session is %s, delivery %s, %d POSTs", v.State, v.Delivery.State, posts)
		}
	}
	t.Log(fmt.Sprint(len(m.begun), " sessions, ", unknown, " unknown"))
	if unknown > 0 {
		t.Errorf("%d deliveries are unknown: a claim was open when the store was sealed", unknown)
	}
}
