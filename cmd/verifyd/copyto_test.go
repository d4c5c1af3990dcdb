package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"verifyd/cmd/verifyd/command/process"
	"verifyd/cmd/verifyd/demo"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/transfer"
)

// copying is a service that keeps a copy of its store.
type copying struct {
	*child
	api  api
	copy string
}

func newCopying(t *testing.T) *copying {
	t.Helper()
	natstest.NeedsEmbedded(t, "copies an embedded store")
	c := &copying{child: newChild(t), copy: t.TempDir()}
	c.env = append(c.env, "VERIFYD_COPY_TO="+c.copy, "VERIFYD_RATE_LIMIT=1000/s", "VERIFYD_RATE_BURST=1000",
		"VERIFYD_LOG_LEVEL=info")
	c.start(t)
	c.api = api{base: c.base(), key: c.makeKey(t, "Harbor Guild")}
	c.api.knownSoon(t)
	return c
}

// until returns the instant until which the store is copied.
func (c *copying) until() time.Time {
	s, err := transfer.OpenSource(c.copy)
	if err != nil {
		return time.Time{}
	}
	defer func() { _ = s.Close() }()
	return s.Head().CreatedAt
}

// upToDate waits until everything that was stored before is in the copy.
func (c *copying) upToDate(t *testing.T) {
	t.Helper()
	now := time.Now()
	natstest.Await(t, "the copy to be up to date", func() bool { return c.until().After(now) })
}

// saysCopyIsCurrent waits until the service says under its load that the copy is behind by no more than it
// may be, and returns the instant that it names.
func (c *copying) saysCopyIsCurrent(t *testing.T) time.Time {
	t.Helper()
	doc := natstest.AwaitValue(t, "the copy in status", func() process.StatusDoc { return c.status(t) },
		func(doc process.StatusDoc) bool {
			return doc.Copy != nil && doc.Copy.Failure == "" && !doc.Copy.At.IsZero() &&
				doc.Copy.Lag <= transfer.MaxCopyLag.Seconds()
		})
	t.Logf("figures: under load the copy is %.1f s behind", doc.Copy.Lag)
	return doc.Copy.At
}

// restored returns the service on a new store that was filled from the copy; the one that was copied is gone.
func (c *copying) restored(t *testing.T) (n *child, said string) {
	t.Helper()
	n = &child{}
	*n = *c.child
	n.dir, n.log = t.TempDir(), &buffer{}
	n.ownStore(t)
	n.keep(t, filepath.Join(c.dir, "store", "secret.key"))
	code, _, said := verifydAs(t, n, "restore", c.copy)
	if code != 0 {
		t.Fatalf("restore: exit %d: %s", code, said)
	}
	return n, said
}

// verifydAs runs another verifyd command on a child's data directory, and returns all that it says.
func verifydAs(t *testing.T, c *child, args ...string) (code int, out, errOut string) {
	t.Helper()
	cmd := exec.Command(c.binary(), args...)
	cmd.Env = append(os.Environ(), c.env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = runTied(cmd) // the code says it
	return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

// begunSession is what the user and the integrator of a session were told, and when.
type begunSession struct {
	demo.Started
	acknowledged time.Time
	verified     time.Time // zero: nobody was told so
}

// users makes people sign in, one at a time, until ctx ends.
func (c *copying) users(ctx context.Context, t *testing.T, n int) (wait func() []*begunSession) {
	t.Helper()
	var all []*begunSession
	var mu sync.Mutex
	var busy sync.WaitGroup
	busy.Go(func() {
		for { // nobody waits for one POST
			select {
			case <-c.inbox.got:
			case <-ctx.Done():
				return
			}
		}
	})
	for i := range n {
		busy.Go(func() {
			for ctx.Err() == nil {
				s, ok := c.api.tryInit(t, c.inbox.CallbackURL())
				if !ok {
					return // the service is gone
				}
				b := &begunSession{Started: s, acknowledged: time.Now()}
				mu.Lock()
				all = append(all, b)
				mu.Unlock()
				if i == 0 {
					continue // leaves its sessions open
				}
				u := loadUser{browser: demo.NewBrowser(), link: s.VerifyURL, turns: make(chan struct{}, 1)}
				if u.signIn(ctx) == nil {
					b.verified = time.Now()
				}
			}
		})
	}
	return func() []*begunSession { busy.Wait(); return all }
}

// The service is killed under load and its store is lost. The store that is restored from the copy has
// everything that was acknowledged until an instant, which the restore reports: a few seconds before the kill
// by the service's own clock, and no earlier than the service has said. Nothing is posted a second time, and
// no session can be completed that may have been completed.
func TestRestoreFromTheCopyOfAKilledService(t *testing.T) {
	skipKills(t)
	t.Parallel()
	c := newCopying(t)
	ctx, cancel := context.WithCancel(t.Context())
	wait := c.users(ctx, t, 5)
	c.upToDate(t)
	for range 20 { // seconds of load, and passes with something in them
		c.upToDate(t)
		if c.inbox.total() > 60 {
			break
		}
	}
	said := c.saysCopyIsCurrent(t)
	copied := c.inbox.total()
	natstest.Await(t, "callbacks that may not be in the copy", func() bool {
		return c.inbox.total() > copied+20
	})
	killed := time.Now()
	c.kill()
	cancel()
	begun := wait()
	until := c.until()
	if until.Before(said) {
		t.Errorf("the service has said that the copy is of %s, and it is of %s", said, until)
	}
	n, told := c.restored(t)
	if !strings.Contains(told, until.UTC().Format(time.RFC3339)) ||
		!strings.Contains(told, "deliveries are unknown") ||
		!strings.Contains(told, "after that is not in it") {
		t.Errorf("the restore says:\n%s", told)
	}
	n.args = []string{"--copy-to", t.TempDir()}
	n.start(t)
	kept, lost, ended := 0, 0, 0
	for _, b := range begun {
		status, _, body := c.api.call(t, http.MethodGet, "/sessions/"+b.Session, "")
		if status == http.StatusNotFound {
			lost++
			if b.acknowledged.Before(until) {
				t.Errorf("a session that was acknowledged %s before the copy's instant is lost",
					until.Sub(b.acknowledged))
			}
			continue
		}
		kept++
		var v receipt
		if err := json.Unmarshal(body, &v); err != nil {
			t.Fatal(err)
		}
		if !b.verified.IsZero() && b.verified.Before(until) && v.State != "verified" {
			t.Errorf("a session that was verified %s before the copy's instant is %s", until.Sub(b.verified),
				v.State)
		}
		if v.State == "pending" || v.Delivery.State == "due" || v.Delivery.State == "claimed" {
			t.Errorf("a session is %s, its delivery %s", v.State, v.Delivery.State)
		}
		if v.State == "expired" {
			ended++
			if p := must[*demo.Page](t)(demo.NewBrowser().
				Open(t.Context(), b.VerifyURL)); p.Status == http.StatusOK {
				t.Errorf("the page of a session that has expired: %d %q", p.Status, p.Title())
			}
		}
	}
	t.Logf("figures: %d sessions: %d kept, of these %d ended by the restore; %d lost with the last %s",
		len(begun), kept, ended, lost, killed.Sub(until).Round(time.Millisecond))
	fresh := (&backedUp{child: n, api: c.api}).sign(t, n.inbox.CallbackURL())
	if v := c.api.settled(t, fresh.session.Session); v.Delivery.State != "delivered" {
		t.Errorf("a new session: %+v", v)
	}
	c.inbox.mu.Lock()
	defer c.inbox.mu.Unlock()
	for id, posts := range c.inbox.posts {
		if len(posts) > 1 {
			t.Errorf("%d POSTs for %s", len(posts), id)
		}
	}
}

// total counts the POSTs.
func (in *inbox) total() (n int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, posts := range in.posts {
		n += len(posts)
	}
	return n
}

// status reads the JSON of verifyd status.
func (c *child) status(t *testing.T) (doc process.StatusDoc) {
	t.Helper()
	_, out, _ := verifydAs(t, c, "status", "--json")
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return doc
}

// A service that is stopped leaves a complete copy, continues it when it is started again, and reports on it
// in status, readiness and metrics; a missing disk is reported there, and disturbs nothing else.
func TestCopyIsReportedAndContinues(t *testing.T) {
	t.Parallel()
	c := newCopying(t)
	c.upToDate(t)
	natstest.Await(t, "the copy in status", func() bool {
		doc := c.status(t)
		return doc.OK && doc.Copy != nil && doc.Copy.Dir == c.copy && doc.Copy.Lag <= 5 &&
			doc.Copy.Failure == ""
	})
	s := c.api.init(t, map[string]any{
		"platform": "p", "platform_user_id": "u", "callback_url": c.inbox.CallbackURL(),
	})
	if err := c.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := c.end(t); err != nil {
		t.Fatal(err)
	}
	before := copyFiles(t, c.copy)
	n, _ := c.restored(t)
	n.args = []string{"--copy-to", t.TempDir()}
	n.start(t)
	if v := c.api.read(t, s.Session); v.State != "expired" {
		t.Errorf("what was started right before the stop: %+v", v)
	}
	n.kill()
	c.start(t)
	c.upToDate(t)
	if after := copyFiles(t, c.copy); after != before {
		t.Errorf("the copy %s goes on as %s", before, after)
	}
	away := c.copy + ".away"
	if err := os.Rename(c.copy, away); err != nil {
		t.Fatal(err)
	}
	natstest.Await(t, "the copy's trouble in status", func() bool {
		doc := c.status(t)
		return !doc.OK && doc.Copy != nil && doc.Copy.Failure != "" &&
			strings.Contains(strings.Join(doc.Problems, "\n"), "behind: the folder of the copy")
	})
	if !c.readyz(t.Context()) {
		t.Error("without its copy the service is not ready")
	}
	_, _, metrics := (api{base: "http://" + c.admin}).open(t, "/metrics")
	if !strings.Contains(string(metrics), "verifyd_copy_failures_total") ||
		!strings.Contains(string(metrics), "verifyd_copy_lag_seconds") {
		t.Error("the metrics tell nothing of the copy")
	}
	c.api.init(t, map[string]any{
		"platform": "p", "platform_user_id": "u", "callback_url": c.inbox.CallbackURL(),
	})
	if err := os.Rename(away, c.copy); err != nil {
		t.Fatal(err)
	}
	natstest.Await(t, "the copy to catch up", func() bool { return c.status(t).OK })
}

// copyFiles lists the folder of a copy.
func copyFiles(t *testing.T, dir string) string {
	t.Helper()
	var names []string
	for _, e := range must[[]os.DirEntry](t)(os.ReadDir(dir)) {
		if !strings.HasSuffix(e.Name(), ".new") {
			names = append(names, e.Name())
		}
	}
	return strings.Join(names, " ")
}

// An invalid VERIFYD_COPY_TO ends the start, with what would be valid.
func TestCopyToIsRefused(t *testing.T) {
	t.Parallel()
	natstest.NeedsEmbedded(t, "copies an embedded store")
	c := newChild(t)
	taken := t.TempDir()
	if err := os.WriteFile(filepath.Join(taken, "photo.jpg"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{
		filepath.Join(c.dir, "store"): "is in the data directory", taken: "holds something else (photo.jpg)",
		filepath.Join(taken, "photo.jpg"): "is not a folder",
	} {
		refuses(t, &child{dir: c.dir, env: append(c.env, "VERIFYD_COPY_TO="+dir), argv: c.argv}, want)
	}
	external := append(slices.Clone(c.env), "VERIFYD_COPY_TO="+t.TempDir(),
		"VERIFYD_NATS_URL=nats://127.0.0.1:1", "VERIFYD_SECRET_KEY="+strings.Repeat("A", 43)+"=")
	refuses(t, &child{dir: c.dir, env: external, argv: c.argv},
		"external servers keep VERIFYD_REPLICAS copies")
}
