package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"verifyd/cmd/verifyd/demo"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/storefile"
	"verifyd/natsconf/topology"
)

const recoverUsers = 60

// flip changes one bit around the middle of a stream's first block file.
func flip(t *testing.T, dataDir, stream string) {
	t.Helper()
	flipAt(t, dataDir, stream, func(size int) int { return size/4 + rand.IntN(size/2) })
}

// flipAt changes one bit of a stream's first block file, at a place that depends on its size.
func flipAt(t *testing.T, dataDir, stream string, at func(size int) int) {
	t.Helper()
	path := filepath.Join(dataDir, "nats", "jetstream", "$G", "streams", stream, "msgs", "1.blk")
	b := must[[]byte](t)(os.ReadFile(path))
	b[at(len(b))] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// One bit of a stream is damaged after a kill. The service is not started on it; after verifyd recover every
// outcome is the one that its user read, nothing is sent again, nothing can be completed again, and the loss
// is reported.
func TestRecover(t *testing.T) {
	natstest.NeedsEmbedded(t, "what its files hold")
	skipKills(t)
	t.Parallel()
	for stream, runs := range recoverRuns {
		for range runs {
			t.Run(stream, func(t *testing.T) {
				t.Parallel()
				recoverFrom(t, stream)
			})
		}
	}
}

// recoverRuns is how often a bit of each stream is flipped: a fact may be a claim, a result or an outcome.
var recoverRuns = map[string]int{
	topology.StreamCompletions: 4, topology.StreamAudit: 1, topology.BucketStream(topology.BucketSessions): 1,
	topology.BucketStream(topology.BucketKeys): 1,
}

func recoverFrom(t *testing.T, stream string) {
	c := newChild(t)
	c.env = append(c.env, "VERIFYD_LOG_LEVEL=info")
	receiver := newCounter(t, c.inbox.ca, must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0")))
	c.start(t)
	key := c.makeKey(t, "Harbor Guild", "--rate-limit", "100000/s")
	spare := must[string](t)(c.command(t, "key", "create", "--account", "Harbor Guild", "--name", "spare"))
	a := api{base: c.base(), key: key}
	a.knownSoon(t)
	users := &crowd{base: c.base(), key: key, counter: receiver}
	// Nobody listens there: these wait for their next try.
	dead := a.init(t, map[string]any{
		"platform": "p", "platform_user_id": "waits", "callback_url": "https://127.0.0.1:1/callback",
	})
	users.walk(t.Context(), rand.New(rand.NewPCG(1, 2)), recoverUsers, recoverUsers)
	data := filepath.Join(c.dir, "store")
	// Until then a damaged end looks like that of an interrupted write.
	natstest.Await(t, "the witness knows what was acknowledged", func() bool {
		return witnessed(t, data, stream)
	})
	c.kill()

	flip(t, data, stream)
	c.launch(t)
	if err := c.end(t); err == nil ||
		!strings.Contains(c.log.String(), "the store is damaged and is not served:\n  "+stream) {
		t.Fatalf("a start on a damaged store: %v\n%s", err, c.log)
	}
	if out, err := c.command(t, "check", "--deep"); err == nil || !strings.Contains(out, stream) {
		t.Errorf("check --deep: %v\n%s", err, out)
	}
	said, err := c.command(t, "recover")
	if err != nil || !strings.Contains(said, stream+": ") {
		t.Fatalf("recover: %v\n%s", err, said)
	}
	t.Log(said)
	if kept, _ := filepath.Glob(filepath.Join(data, "damaged", "*", stream, "1.blk")); len(kept) != 1 {
		t.Errorf("the damaged file is not kept: %v", kept)
	}
	if out, err := c.command(t, "recover"); err != nil || !strings.Contains(out, "nothing to recover") {
		t.Errorf("recover once more: %v\n%s", err, out)
	}
	c.start(t)
	if out, err := c.command(t, "operator", "audit"); err != nil ||
		!strings.Contains(out, "store.recovered") {
		t.Errorf("the log of operations: %v\n%s", err, out)
	}
	if stream == topology.BucketStream(topology.BucketKeys) {
		if !strings.Contains(said, "Lost API keys, to be created again: key_") {
			t.Errorf("the lost key is not named: %s", said)
		}
		key = spare
		if out, err := c.command(t, "key", "list"); err != nil || !strings.Contains(out, "spare") {
			key = users.key // the flip hit the spare one
		}
	}
	users.afterLoss(t, api{base: c.base(), key: key}, stream, dead.Session)
}

// afterLoss compares the store's contents with what users read and the receiver got.
func (c *crowd) afterLoss(t *testing.T, a api, stream, dead string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), natstest.TestTimeout)
	defer cancel()
	unknown, closed, gone := 0, 0, 0
	for _, p := range c.people {
		status, _, _ := a.call(t, "GET", "/sessions/"+p.session.Session, "")
		if status != 200 {
			gone++
			continue
		}
		v := a.read(t, p.session.Session)
		posts := len(c.counter.of(v.ID))
		switch {
		case posts > 1:
			t.Errorf("%s got %d POSTs", p.user, posts)
		case p.told && v.State == "expired":
			closed++
		case p.told && v.State != p.state:
			t.Errorf("%s read %q, and the session is %s now", p.user, p.reads, v.State)
		case v.Delivery.State == "unknown":
			unknown++
		}
		if again := (&person{way: p.way, user: p.user, session: p.session}); v.State != "pending" &&
			again.try(ctx) && again.reads != "" && v.State == "expired" {
			t.Errorf("%s could complete a closed session", p.user)
		}
	}
	if stream != topology.BucketStream(topology.BucketSessions) && gone > 0 {
		t.Errorf("%d sessions are gone", gone)
	}
	if gone > 1 || closed > 1 {
		t.Errorf("%d sessions are gone and %d closed by one damaged record", gone, closed)
	}
	t.Logf("%s: %d deliveries unknown, %d sessions closed, %d gone", stream, unknown, closed, gone)
}

// witnessed reports whether the store's witness has all that a stream's files have.
func witnessed(t *testing.T, data, stream string) bool {
	t.Helper()
	file, err := os.ReadFile(filepath.Join(data, embedded.WitnessFile))
	if errors.Is(err, os.ErrNotExist) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := bytes.Cut(file, []byte("\n")) // after its checksum
	var witness struct {
		Streams []struct {
			Name string
			Last uint64
		}
	}
	if err := json.Unmarshal(text, &witness); err != nil {
		t.Fatal(err)
	}
	held := must[storefile.Stream](t)(storefile.Scan(embedded.StreamFolder(data, stream), stream))
	for _, s := range witness.Streams {
		if s.Name == stream {
			return s.Last == held.Last
		}
	}
	return false
}

// Whether a callback arrived that was being sent when the service ended is unknown, although nothing of it is
// lost: a recovery reports it, too.
func TestRecoverReportsWhatWasBeingSent(t *testing.T) {
	natstest.NeedsEmbedded(t, "what its files hold")
	t.Parallel()
	c := newChild(t)
	defer c.inbox.keepWaiting()()
	c.untilPosted(t)
	data := filepath.Join(c.dir, "store")
	natstest.Await(t, "the witness knows what was acknowledged", func() bool {
		return witnessed(t, data, topology.StreamAudit)
	})
	c.kill()
	flip(t, data, topology.StreamAudit)
	said, err := c.command(t, "recover")
	if err != nil || !strings.Contains(said, "when the service ended: 1.") ||
		!strings.Contains(said, "0 deliveries are unknown") {
		t.Errorf("recover: %v\n%s", err, said)
	}
}

// pageOfKeys is the sessions of one process, which seals them under keys of one page.
type pageOfKeys struct{ delivered, waits, open *person }

// startPage has a user whose callback is delivered, one whose callback waits, and one who has not signed in.
func (c *crowd) startPage(t *testing.T, n int) (p pageOfKeys) {
	t.Helper()
	i := &demo.Integrator{Base: c.base, APIKey: c.key}
	start := func(user, callbackURL string, way way) *person {
		s := must[demo.Started](t)(i.StartFor(t.Context(), fmt.Sprintf("%s %d", user, n), callbackURL))
		p := &person{way: way, user: fmt.Sprintf("%s %d", user, n), session: s}
		if !p.try(t.Context()) {
			t.Fatalf("%s was not verified", p.user)
		}
		return p
	}
	signsIn, leaves := ways[len(ways)-1], ways[0]
	p = pageOfKeys{
		delivered: start("delivered", c.counter.url, signsIn),
		waits:     start("waits", "https://127.0.0.1:1/callback", signsIn),
		open:      start("open", c.counter.url, leaves),
	}
	api{base: c.base, key: c.key}.until(t, p.delivered.session.Session, "delivered")
	return p
}

// One page of sessions' keys is damaged after a kill: their personal parts cannot be unsealed any more. The
// service is not started on it; after verifyd recover each of these sessions has an end that is reported,
// nothing is sent again, and sessions of other pages continue as before.
func TestRecoverLostKeys(t *testing.T) {
	natstest.NeedsEmbedded(t, "what its files hold")
	skipKills(t)
	t.Parallel()
	c := newChild(t)
	c.env = append(c.env, "VERIFYD_LOG_LEVEL=info")
	receiver := newCounter(t, c.inbox.ca, must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0")))
	c.start(t)
	a := api{base: c.base(), key: c.makeKey(t, "Harbor Guild", "--rate-limit", "100000/s")}
	users := &crowd{base: c.base(), key: a.key, counter: receiver}
	var pages []pageOfKeys
	for n := range 3 {
		if n > 0 {
			c.restart(t)
		}
		a.knownSoon(t)
		pages = append(pages, users.startPage(t, n))
	}
	c.kill()

	const keys = topology.StreamSessionKeys
	flipAt(t, filepath.Join(c.dir, "store"), keys, func(size int) int { return size / 2 })
	c.launch(t)
	if err := c.end(t); err == nil ||
		!strings.Contains(c.log.String(), "the store is damaged and is not served:\n  "+keys) {
		t.Fatalf("a start on a damaged store: %v\n%s", err, c.log)
	}
	said, err := c.command(t, "recover")
	if err != nil {
		t.Fatalf("recover: %v\n%s", err, said)
	}
	for _, part := range []string{
		"up to 1 messages are lost", "callback URLs are no longer known: 3.", "cannot be sent: 1.",
		"0 deliveries are unknown, 1 sessions were closed",
	} {
		if !strings.Contains(said, part) {
			t.Errorf("recover does not say %q:\n%s", part, said)
		}
	}
	c.start(t)
	a.knownSoon(t)
	pages[1].afterLoss(t, a, c)
	for _, p := range []pageOfKeys{pages[0], pages[2]} {
		p.afterLossOfAnother(t, a)
	}
	for _, p := range pages {
		if posts := len(receiver.of(a.read(t, p.delivered.session.Session).ID)); posts != 1 {
			t.Errorf("%s got %d POSTs", p.delivered.user, posts)
		}
	}
	if posts := receiver.total(); posts != len(pages)+2 {
		t.Errorf("%d POSTs for %d deliveries and two afterwards", posts, len(pages))
	}
	var list struct{ Sessions []receipt }
	_, _, body := a.call(t, http.MethodGet, "/sessions", "")
	if err := json.Unmarshal(body, &list); err != nil || len(list.Sessions) != 3*len(pages) {
		t.Errorf("%d sessions are listed of %d", len(list.Sessions), 3*len(pages))
	}
	if strings.Contains(c.log.String(), "panic") ||
		strings.Contains(c.log.String(), "not written by verifyd") {
		t.Errorf("the log:\n%s", c.log)
	}
}

// afterLoss compares the reports on the sessions of a lost page with what is known of them.
func (p pageOfKeys) afterLoss(t *testing.T, a api, c *child) {
	t.Helper()
	want := []struct {
		who                     *person
		state, reason, delivery string
	}{
		{p.delivered, "verified", "", "delivered"},
		{p.waits, "verified", "", "undeliverable"},
		{p.open, "expired", "outcome_lost", "none"},
	}
	for _, w := range want {
		id := w.who.session.Session
		v := a.until(t, id, w.delivery)
		if v.State != w.state || v.Reason != w.reason || v.PlatformUserID != "" {
			t.Errorf("%s: %+v", w.who.user, v)
		}
		status, _, body := a.call(t, http.MethodPost, "/sessions/"+id+"/resend", "")
		if status != http.StatusConflict || !strings.Contains(string(body), "nothing_to_send") {
			t.Errorf("%s: sent again: %d %s", w.who.user, status, body)
		}
		again := &person{way: ways[len(ways)-1], session: w.who.session}
		if read := again.try(t.Context()); read != (w.state == "verified") {
			t.Errorf("%s: the link leads to success: %t", w.who.user, read)
		}
		if out, err := c.command(t, "explain", id); err != nil || !strings.Contains(out, w.state) {
			t.Errorf("%s: explain: %v\n%s", w.who.user, err, out)
		}
	}
	attempts := a.read(t, p.waits.session.Session).Delivery.Attempts
	if len(attempts) != 1 || attempts[0].(map[string]any)["class"] != "lost" {
		t.Errorf("a callback without its URL: %+v", attempts)
	}
}

// afterLossOfAnother expects no effect of a lost page on the sessions of an intact one.
func (p pageOfKeys) afterLossOfAnother(t *testing.T, a api) {
	t.Helper()
	for who, delivery := range map[*person]string{p.delivered: "delivered", p.waits: "due", p.open: "none"} {
		v := a.read(t, who.session.Session)
		if v.State != who.state || v.PlatformUserID != who.user || v.Delivery.State != delivery {
			t.Errorf("%s: %+v", who.user, v)
		}
	}
	p.open.way = ways[len(ways)-1]
	if !p.open.try(t.Context()) {
		t.Errorf("%s is not verified", p.open.user)
	}
	a.until(t, p.open.session.Session, "delivered")
}
