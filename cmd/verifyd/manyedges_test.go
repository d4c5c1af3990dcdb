package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"verifyd/cmd/verifyd/demo"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/natstest/prove"
	"verifyd/natsconf/secretbox"
)

var readPairs = flag.Int("read-pairs", 2000,
	"how many sessions TestReadsAfterWrites creates on one edge and reads on another")

// plant runs processes of the service that share one store on three NATS servers.
type plant struct {
	first *child // where commands run, and the receiver of all
	env   []string
	used  bool   // first's addresses are
	roles string // what verifyd prepare has written, with a credential for each role; empty: one may do all
}

func newPlant(t *testing.T) *plant {
	t.Helper()
	first := newChild(t)
	return &plant{first: first,
		env: append(slices.Clone(first.env), "VERIFYD_NATS_URL="+natstest.ClusterURL(t, first.dir),
			"VERIFYD_SECRET_KEY="+secretbox.NewKey().Encode(), "VERIFYD_LOG_LEVEL=warn")}
}

// launch starts a process with a role. All have the base URL of the first.
func (p *plant) launch(t *testing.T, role string) *child {
	t.Helper()
	c := *p.first
	c.log = &buffer{}
	if p.used {
		c.listen, c.admin = natstest.Address(t), natstest.Address(t)
	}
	p.used = true
	c.env = append(slices.Clone(p.env), "VERIFYD_LISTEN="+c.listen, "VERIFYD_ADMIN_LISTEN="+c.admin,
		"VERIFYD_ROLES="+role)
	if p.roles != "" {
		c.env = append(c.env, roleEnv(p.roles, role)...)
	}
	c.up = c.readyz
	c.launch(t)
	return &c
}

func awaitAll(t *testing.T, all ...*child) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), natstest.TestTimeout)
	defer cancel()
	for _, c := range all {
		if !c.becomesReady(ctx) {
			t.Fatalf("a process does not become ready:\n%s", c.log)
		}
	}
}

// newEdges starts edges on a store of their own.
func newEdges(t *testing.T, n int) []*child {
	t.Helper()
	p := newPlant(t)
	edges := make([]*child, n)
	for i := range edges {
		edges[i] = p.launch(t, "edge")
	}
	awaitAll(t, edges...)
	return edges
}

// keyFor creates a key of an account and waits until every edge has it.
func keyFor(t *testing.T, edges []*child, account string, args ...string) string {
	t.Helper()
	key := edges[0].makeKey(t, account, args...)
	for _, e := range edges {
		api{base: e.base(), key: key}.knownSoon(t)
	}
	return key
}

// caller makes many requests on connections that it keeps.
type caller struct {
	client *http.Client
	key    string
}

func newCaller(t *testing.T, key string) *caller {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	return &caller{client: &http.Client{Transport: transport, Timeout: demo.BrowserTimeout}, key: key}
}

func (c *caller) do(ctx context.Context, method, url, body string) (*http.Response, []byte, error) {
	q, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	q.Header.Set("Authorization", "Bearer "+c.key)
	q.Header.Set("Content-Type", "application/json")
	r, err := c.client.Do(q)
	if err != nil {
		return nil, nil, err
	}
	defer r.Body.Close()
	answer, err := io.ReadAll(r.Body)
	return r, answer, err
}

const anInit = `{"platform":"p","platform_user_id":"u","callback_url":"https://receiver.example.com/verified"}`

func (c *caller) init(ctx context.Context, edge *child) (status int, session string, err error) {
	r, answer, err := c.do(ctx, http.MethodPost, edge.base()+"/verify/init", anInit)
	if err != nil {
		return 0, "", err
	}
	if r.StatusCode == http.StatusOK {
		var s demo.Started
		err = json.Unmarshal(answer, &s)
		session = s.Session
	}
	return r.StatusCode, session, err
}

// atOnce does something n times, on several goroutines.
func atOnce(n, workers int, do func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	wg.Wait()
}

// What one edge has acknowledged the others read at once, whichever server of the cluster they are connected
// to.
//
// docs/EVIDENCE.md has the command of a long run.
func TestReadsAfterWrites(t *testing.T) {
	prove.Only(t, "cluster", "several processes on three NATS servers")
	t.Parallel()
	edges := newEdges(t, 3)
	c := newCaller(t, keyFor(t, edges, "Harbor Guild", "--rate-limit", "100000/s"))
	var stale, wrong atomic.Int64
	began := time.Now()
	atOnce(*readPairs, 16, func(i int) {
		status, session, err := c.init(t.Context(), edges[i%3])
		for err == nil && status == http.StatusServiceUnavailable && pass(t.Context(), patience()) {
			status, session, err = c.init(t.Context(), edges[i%3]) // a busy store refuses, as documented
		}
		if err != nil || status != http.StatusOK {
			wrong.Add(1)
			t.Errorf("init: %d %v", status, err)
			return
		}
		var v receipt
		r, answer, err := c.do(t.Context(), http.MethodGet,
			edges[(i+1+i/3%2)%3].base()+"/sessions/"+session, "")
		switch {
		case err == nil && r.StatusCode == http.StatusNotFound:
			stale.Add(1)
		case err != nil || r.StatusCode != http.StatusOK || json.Unmarshal(answer, &v) != nil ||
			v.State != "pending":
			wrong.Add(1)
			t.Errorf("read: %v %v %s", r, err, answer)
		}
	})
	t.Logf("figures: %d pairs in %.1f s, %d stale", *readPairs, time.Since(began).Seconds(), stale.Load())
	if stale.Load() > 0 {
		t.Errorf("%d of %d sessions were not there for another edge", stale.Load(), *readPairs)
	}
}

// The monthly quota is exact, the rate limit within its bound, and a revoked key refused, by any number of
// edges.
func TestLimitsOverEdges(t *testing.T) {
	prove.Only(t, "cluster", "several processes on three NATS servers")
	edges := newEdges(t, 4)
	for _, n := range []int{1, 2, 4} {
		of := edges[:n]
		t.Run(fmt.Sprintf("quota over %d", n), func(t *testing.T) { quotaOver(t, edges, of) })
		t.Run(fmt.Sprintf("rate over %d", n), func(t *testing.T) { rateOver(t, edges, of) })
		t.Run(fmt.Sprintf("revocation over %d", n), func(t *testing.T) { revocationOver(t, edges, of) })
	}
}

func quotaOver(t *testing.T, all, of []*child) {
	const quota, asked = 300, 500
	c := newCaller(t, keyFor(t, all, "Quota "+strconv.Itoa(len(of)), "--rate-limit", "100000/s"))
	must[string](t)(all[0].command(t, "account", "quota", "Quota "+strconv.Itoa(len(of)),
		strconv.Itoa(quota)))
	var started atomic.Int64
	for _, e := range of { // an edge knows of the quota within a second; what it starts until then counts too
		natstest.Await(t, "the quota is known", func() bool {
			r, _, err := c.do(t.Context(), http.MethodPost, e.base()+"/verify/init", anInit)
			if err != nil || r.StatusCode != http.StatusOK {
				t.Fatal(r, err)
			}
			started.Add(1)
			return strings.HasSuffix(r.Header.Get("RateLimit-Policy"), fmt.Sprintf(`"month";q=%d`, quota))
		})
	}
	atOnce(asked, 16, func(i int) {
		status, _, err := c.init(t.Context(), of[i%len(of)])
		switch {
		case err == nil && status == http.StatusOK:
			started.Add(1)
		case err != nil || status != http.StatusTooManyRequests:
			t.Errorf("init: %d %v", status, err)
		}
	})
	// Near the end of the quota an edge may be refused while another still holds units; they go back within
	// moments.
	deadline := time.Now().Add(natstest.TestTimeout)
	for started.Load() < quota && time.Now().Before(deadline) {
		atOnce(len(of), len(of), func(i int) {
			if status, _, err := c.init(t.Context(), of[i]); err == nil && status == http.StatusOK {
				started.Add(1)
			}
		})
	}
	if got := started.Load(); got != quota {
		t.Errorf("%d sessions started on a quota of %d", got, quota)
	}
}

// Load of three times the limit, evenly over all edges: docs/GUARANTEES.md allows a tenth beyond it, the
// burst included.
func rateOver(t *testing.T, all, of []*child) {
	const rate, burst, lasts = 100, 100, 2 * time.Second // a burst is one second's worth
	key := keyFor(t, all, "Rate "+strconv.Itoa(len(of)), "--rate-limit", strconv.Itoa(rate)+"/s")
	c := newCaller(t, key)
	var started atomic.Int64
	tick := time.NewTicker(time.Second / (3 * rate))
	defer tick.Stop()
	var wg sync.WaitGroup
	began := time.Now()
	for i := 0; time.Since(began) < lasts; i++ {
		<-tick.C
		wg.Go(func() {
			status, _, err := c.init(t.Context(), of[i%len(of)])
			if err != nil || status != http.StatusOK && status != http.StatusTooManyRequests {
				t.Errorf("init: %d %v", status, err)
			} else if status == http.StatusOK {
				started.Add(1)
			}
		})
	}
	asked := time.Since(began).Seconds() // the last answers may take longer
	wg.Wait()
	took := time.Since(began).Seconds()
	bound := 1.1 * (burst + rate*took)
	t.Logf("figures: %d started in %.1f s at %d/s over %d edges, bound %.0f", started.Load(), took, rate,
		len(of), bound)
	if got := float64(started.Load()); got > bound || got < 0.8*rate*asked {
		t.Errorf("%.0f sessions started in %.1f s at %d/s over %d edges, want at most %.0f", got, took, rate,
			len(of), bound)
	}
}

func revocationOver(t *testing.T, all, of []*child) {
	key := keyFor(t, all, "Revoked "+strconv.Itoa(len(of)), "--rate-limit", "100000/s")
	if out, err := of[0].command(t, "key", "revoke", key); err != nil {
		t.Fatal(out, err)
	}
	revoked := time.Now()
	c := newCaller(t, key)
	for _, e := range of { // with a 429 if this address has just sent too many invalid keys
		natstest.Await(t, "the revoked key is refused", func() bool {
			r, _, err := c.do(t.Context(), http.MethodGet, e.base()+"/sessions/"+strings.Repeat("a", 32), "")
			return err == nil && (r.StatusCode == http.StatusUnauthorized ||
				r.StatusCode == http.StatusTooManyRequests)
		})
	}
	t.Logf("figures: refused by %d edges %.0f ms after the command had ended", len(of),
		1000*time.Since(revoked).Seconds())
}

// Dispatchers are added and removed by SIGTERM while outcomes are being delivered to a slow receiver: each of
// them arrives once, none is unknown.
func TestDispatchersComeAndGo(t *testing.T) {
	prove.Only(t, "cluster", "several processes on three NATS servers")
	t.Parallel()
	p := newPlant(t)
	edge, one := p.launch(t, "edge"), p.launch(t, "dispatcher")
	awaitAll(t, edge, one)
	c := &crowd{
		base: edge.base(), key: keyFor(t, []*child{edge}, "Harbor Guild", "--rate-limit", "100000/s"),
		counter: newCounter(t, p.first.inbox.ca, must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))),
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	var wg sync.WaitGroup
	defer func() { cancel(); wg.Wait() }()
	wg.Go(func() { c.walk(ctx, rand.New(rand.NewPCG(1, 2)), 400, 8*time.Second) })
	at := []*child{one}
	for range 3 {
		d := p.launch(t, "dispatcher")
		awaitAll(t, d)
		at = append(at, d)
	}
	for _, d := range at[:3] {
		if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := d.end(t); err != nil {
			t.Errorf("a dispatcher that was told to stop: %v\n%s", err, d.log)
		}
	}
	wg.Wait()
	got := c.judge(t)
	t.Log(got)
	if got.broken() || got.unknown > 0 {
		t.Errorf("broken promises: %s", got)
	}
}
