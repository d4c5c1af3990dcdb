package main

import (
	"bytes"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"verifyd/cmd/verifyd/demo"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/natstest/prove"
	"verifyd/natsconf/storestate"
	"verifyd/natsconf/topology"
)

// releasedFile names the last released version and its commit, in one line. A release names itself there
// once it is out; before the first one it is a build on the way to it.
const releasedFile = "testdata/released"

// The last released version's store is opened by this build, both run concurrently on a cluster, also with a
// credential for each role, and the released one refuses what a newer build has written, with a hint at what
// to do.
func TestUpgradeFromReleased(t *testing.T) {
	prove.Only(t, "upgrade", "it builds another version")
	t.Parallel()
	exe := buildReleased(t)
	t.Run("store", func(t *testing.T) { t.Parallel(); upgradeStore(t, exe) })
	t.Run("beside", func(t *testing.T) { t.Parallel(); runBeside(t, exe) })
	t.Run("roles", func(t *testing.T) { t.Parallel(); upgradeRoles(t, exe) })
}

// buildReleased builds the last released version from its commit, which a clone without history lacks.
func buildReleased(t *testing.T) (exe string) {
	t.Helper()
	words := strings.Fields(string(must[[]byte](t)(os.ReadFile(releasedFile))))
	if len(words) != 2 {
		t.Fatalf("%s holds %q, not a version and its commit", releasedFile, words)
	}
	version, commit := words[0], words[1]
	dir := t.TempDir()
	archive, exe := filepath.Join(dir, "source.tar"), filepath.Join(dir, "verifyd")
	// from the repository's folder: in another one, git archives that alone
	git := exec.CommandContext(t.Context(), "git", "-C", "../..", "archive", "--output", archive, commit)
	if out, err := git.CombinedOutput(); err != nil {
		t.Fatalf("this proof needs commit %s of %s in the repository's history, which a whole clone has: %s",
			commit, version, bytes.TrimSpace(out))
	}
	source := filepath.Join(dir, "source")
	if err := os.Mkdir(source, 0o700); err != nil {
		t.Fatal(err)
	}
	// Paths out of it, what is built does not depend on the folder, and is found in the build cache again.
	for _, line := range [][]string{
		{"tar", "-xf", archive},
		{"go", "build", "-trimpath", "-buildvcs=false", "-o", exe,
			"-ldflags=-X verifyd/cmd/verifyd/version.built=" + version, "./cmd/verifyd"},
	} {
		c := exec.CommandContext(t.Context(), line[0], line[1:]...)
		c.Dir, c.Env = source, append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(line, " "), err, out)
		}
	}
	return exe
}

// upgradeStore lets the released version fill a store and stop, and this build take over: everything reads as
// it did, and open sessions continue. Then the released version is put back.
func upgradeStore(t *testing.T, exe string) {
	t.Helper()
	natstest.NeedsEmbedded(t, "two builds take turns with one data directory")
	c := newChild(t)
	c.exe = exe
	c.start(t)
	older, away := c.fill(t)
	b := &backedUp{child: c, api: api{base: c.base(), key: older.APIKey}}
	midway := &walk{c: c, api: b.api, browser: demo.NewBrowser()}
	last := len(steps) - 1
	for _, s := range steps[:last] { // its user is at the identity network while the build changes
		s.do(t, midway)
	}
	c.stop(t)
	newCounter(t, c.inbox.ca, must[net.Listener](t)(net.Listen("tcp", away))) // it is back
	c.exe = ""
	c.start(t)
	due, pending := older.session(t, "due"), older.session(t, "none")
	delete(older.Sessions, due)
	b.api.until(t, due, "delivered")
	older.judge(t, b.api)
	steps[last].do(t, midway)
	b.api.until(t, midway.session.Session, "delivered")
	w := walk{c: c, api: b.api, browser: demo.NewBrowser(), session: demo.Started{
		Session: pending, VerifyURL: c.base() + "/?session=" + pending,
	}}
	for _, s := range steps[1:] {
		s.do(t, &w)
	}
	delete(older.Sessions, pending)
	b.api.until(t, pending, "delivered")
	next := b.sign(t, c.inbox.CallbackURL()).session.Session
	b.api.until(t, next, "delivered")
	c.stop(t)

	c.goBack(t, exe, older, next)
}

// goBack starts the released version on a store that this build used, and into which a build of the future
// has written a session, a key and, at last, the state of the store.
func (c *child) goBack(t *testing.T, exe string, older olderStore, next string) {
	t.Helper()
	a := api{base: c.base(), key: older.APIKey}
	sessions := topology.BucketStream(topology.BucketSessions)
	c.exe = exe
	c.start(t)
	for token, want := range older.Sessions {
		// The older one may also refuse what this build has rewritten since. It misreads nothing.
		status, header, body := a.call(t, http.MethodGet, "/sessions/"+token, "")
		if status == http.StatusOK {
			want.like(t, a.read(t, token))
		} else if status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" {
			t.Errorf("on the way back a session reads %d %s", status, body)
		}
	}
	pending := a.init(t, map[string]any{
		"platform": "p", "platform_user_id": "u", "callback_url": c.inbox.CallbackURL(),
	})
	id := a.read(t, pending.Session).ID
	newer := api{base: c.base(), key: c.makeKey(t, "Harbor Guild")}
	newer.knownSoon(t)
	c.stop(t)
	c.renew(t, sessions, "$KV.sessions.*."+id)
	c.renew(t, topology.BucketStream(topology.BucketKeys), ">") // the newest key
	c.start(t)
	for what, asked := range map[string]struct {
		api
		path string
	}{
		"a newer session":     {a, "/sessions/" + pending.Session},
		"a newer build's key": {newer, "/sessions/" + next},
	} {
		status, header, body := asked.call(t, http.MethodGet, asked.path, "")
		if status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %s, want 503 with Retry-After", what, status, body)
		}
	}
	if status, _, list := a.call(t, http.MethodGet, "/sessions?limit=100", ""); status != http.StatusOK ||
		strings.Contains(string(list), id) {
		t.Errorf("a list with a newer session: %d %s", status, list)
	}
	const word = "run the newer verifyd"
	if out, err := c.command(t, "key", "list"); err == nil || !strings.Contains(err.Error(), word) {
		t.Errorf("key list: %s %v", out, err)
	}
	c.stop(t)
	c.renew(t, topology.BucketStream(topology.BucketStore), storestate.Subject())
	refuses(t, c, word)
}

// stop ends the process by SIGTERM.
func (c *child) stop(t *testing.T) {
	t.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := c.end(t); err != nil {
		t.Fatalf("it was told to stop: %v\n%s", err, c.log)
	}
}

var versionMember = regexp.MustCompile(`"v":\d+`)

// renew writes the newest record of a subject again as a build of the future would have written it.
func (c *child) renew(t *testing.T, stream, subject string) {
	t.Helper()
	conn, closed := c.open(t)
	defer closed()
	m, err := conn.Last(t.Context(), stream, subject)
	if err != nil {
		t.Fatalf("%s: %v", subject, err)
	}
	if !versionMember.Match(m.Data) {
		t.Fatalf("%s carries no version: %s", m.Subject, m.Data)
	}
	data := versionMember.ReplaceAll(m.Data, []byte(`"v":99`))
	natstest.Publish(t, conn, m.Subject, data)
}

// session returns the one session whose delivery was in this state.
func (o olderStore) session(t *testing.T, delivery string) string {
	t.Helper()
	for token, s := range o.Sessions {
		if s.Delivery == delivery {
			return token
		}
	}
	t.Fatalf("no session is %s", delivery)
	return ""
}

// judge checks that a service reads what the older build has stored.
func (o olderStore) judge(t *testing.T, a api) {
	t.Helper()
	for token, want := range o.Sessions {
		want.like(t, a.read(t, token))
	}
	_, _, list := a.call(t, http.MethodGet, "/sessions?limit=100", "")
	for token := range o.Sessions {
		if id := a.read(t, token).ID; !strings.Contains(string(list), id) {
			t.Errorf("session %s is in no list", id)
		}
	}
	if status, _, body := (api{base: a.base, key: o.Revoked}).
		call(t, http.MethodGet, "/sessions?limit=1", ""); status != http.StatusUnauthorized {
		t.Errorf("a key that was revoked: %d %s", status, body)
	}
}

// balancer is in front of edges, and chooses one for each request.
type balancer struct {
	at   atomic.Pointer[[]*child]
	turn atomic.Int64
}

// to makes the edges take requests in turn.
func (b *balancer) to(edges ...*child) { b.at.Store(&edges) }

// balance serves a balancer at the address that the service has for its users.
func balance(t *testing.T, address string) *balancer {
	t.Helper()
	b := &balancer{}
	front := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Transport: &http.Transport{DisableKeepAlives: true},
		Rewrite: func(r *httputil.ProxyRequest) {
			at := *b.at.Load()
			r.SetURL(&url.URL{Scheme: "http", Host: at[int(b.turn.Add(1))%len(at)].listen})
			r.Out.Host = r.In.Host
		},
	})
	_ = front.Listener.Close()
	front.Listener = must[net.Listener](t)(net.Listen("tcp", address))
	front.Start()
	t.Cleanup(front.Close)
	return b
}

// mixed is processes of both builds on one store, whose edges are behind a balancer.
type mixed struct {
	*plant
	front *balancer
	api   api
}

// mix puts a balancer at the plant's first address.
func mix(t *testing.T, p *plant) *mixed {
	t.Helper()
	p.used = true
	return &mixed{plant: p, front: balance(t, p.first.listen), api: api{base: p.first.base()}}
}

// launch starts a process of a build, and waits until it is ready.
func (m *mixed) launch(t *testing.T, exe, role string) *child {
	t.Helper()
	m.first.exe = exe
	c := m.plant.launch(t, role)
	awaitAll(t, c)
	return c
}

// sign runs a user whose requests up to a step go to one edge, and the later ones to another. Both read how
// it ended, and the receiver has got one POST.
func (m *mixed) sign(t *testing.T, first, then *child, change int) {
	t.Helper()
	w := &walk{c: m.first, api: m.api, browser: demo.NewBrowser()}
	for i, s := range steps {
		m.front.to(first)
		if i >= change {
			m.front.to(then)
		}
		s.do(t, w)
	}
	m.front.to(first, then)
	v := m.api.until(t, w.session.Session, "delivered")
	for _, at := range []*child{first, then} {
		if read := (api{base: at.base(), key: m.api.key}).read(t, v.ID); read.State != "verified" ||
			read.Delivery.State != "delivered" {
			t.Errorf("an edge reads %+v", read)
		}
	}
	if n := m.first.inbox.count(v.ID); n != 1 {
		t.Errorf("%d POSTs of a session that two builds worked at", n)
	}
}

// runBeside runs edges and dispatchers of both builds on one cluster: what one begins another one ends,
// whichever its build.
func runBeside(t *testing.T, exe string) {
	t.Helper()
	m := mix(t, newPlant(t))
	oldEdge, oldDispatcher := m.launch(t, exe, "edge"), m.launch(t, exe, "dispatcher")
	m.api.key = keyFor(t, []*child{oldEdge}, "Harbor Guild")
	newDispatcher, newEdge := m.launch(t, "", "dispatcher"), m.launch(t, "", "edge") // as docs/UPGRADING.md
	api{base: newEdge.base(), key: m.api.key}.knownSoon(t)
	for change := 1; change < len(steps); change++ {
		m.sign(t, oldEdge, newEdge, change)
		m.sign(t, newEdge, oldEdge, change)
	}
	oldDispatcher.stop(t)
	m.sign(t, newEdge, oldEdge, 1) // the outcome is the older edge's, the delivery this build's
	oldDispatcher = m.launch(t, exe, "dispatcher")
	newDispatcher.stop(t)
	m.sign(t, oldEdge, newEdge, 1) // and the other way about
	m.first.exe = ""
	must[string](t)(newEdge.command(t, "key", "revoke", m.api.key))
	for _, at := range []*child{oldEdge, newEdge} {
		natstest.Await(t, "the key is refused", func() bool {
			status, _, _ := (api{base: at.base(), key: m.api.key}).
				call(t, http.MethodGet, "/sessions?limit=1", "")
			return status == http.StatusUnauthorized
		})
	}
	oldDispatcher.stop(t)
}
