package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"verifyd/cmd/verifyd/demo"
	"verifyd/dispatcher/callback/localca"
	"verifyd/natsconf/crashpoint"
	"verifyd/natsconf/embedded"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/secretbox"
)

const (
	// storeVariable makes this test binary run as a NATS server on the data directory that it names.
	storeVariable = "VERIFYD_TEST_STORE"
	// pauseVariable, if set, makes a dispatcher process pause itself.
	pauseVariable = "VERIFYD_TEST_PAUSE"
	// caughtLine is what it logs before that.
	caughtLine = "paused with claims in its hands"
)

func init() {
	if dir := os.Getenv(storeVariable); dir != "" {
		fmt.Fprintln(os.Stderr, serveStore(dir))
		os.Exit(1)
	}
	if os.Getenv(pauseVariable) != "" {
		pauseOwners()
	}
}

const (
	// pausedOwners is how many deliveries are between their claim and their first byte when a dispatcher
	// pauses itself.
	pausedOwners = 5
	// maxGather is how long they wait for each other.
	maxGather = 2 * time.Second
)

// pauseOwners makes this process pause itself once several of its deliveries hold their claims and have not
// written. Only SIGCONT lets it continue from there.
func pauseOwners() {
	var arrived atomic.Int64
	all := make(chan struct{})
	crashpoint.Hook(func(p string) {
		if p != crashpoint.AfterClaim {
			return
		}
		switch n := arrived.Add(1); {
		case n == pausedOwners:
			fmt.Fprintln(os.Stderr, caughtLine)
			stopSelf()
			close(all)
		case n < pausedOwners:
			select {
			case <-all:
			case <-time.After(maxGather):
			}
		}
	})
}

// stopSelf stops this process, and returns when SIGCONT lets it continue. The signal's own return is no sign:
// another thread may take it, a moment later where the machine is busy.
func stopSelf() {
	woken := make(chan os.Signal, 1)
	signal.Notify(woken, syscall.SIGCONT)
	defer signal.Stop(woken)
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	<-woken
}

func serveStore(dir string) error {
	e, err := embedded.Open(embedded.Options{
		DataDir: dir, Log: zerolog.New(os.Stderr).Level(zerolog.WarnLevel),
	})
	if err != nil {
		return err
	}
	return e.Serve(context.Background())
}

// newStoreProcess prepares a NATS server in a process of its own.
func newStoreProcess(t *testing.T) *child {
	t.Helper()
	c := &child{dir: t.TempDir(), log: &buffer{}}
	c.env = []string{storeVariable + "=" + c.dir}
	c.up = func(context.Context) bool {
		end, err := embedded.ReadEndpoint(c.dir)
		return err == nil && end.PID == c.cmd.Process.Pid
	}
	return c
}

// gateway is a NATS server's lasting address. The port and the credential of natsconf's server change with
// each start of its process; clients of an external server never have to expect that.
type gateway struct {
	dir      string
	listener net.Listener
	carried  sync.WaitGroup
}

// newGateway starts a gateway to the store of a data directory. It ends after the processes on both sides of
// it.
func newGateway(t *testing.T, dir string) *gateway {
	t.Helper()
	g := &gateway{dir: dir, listener: must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))}
	g.carried.Go(func() {
		for {
			conn, err := g.listener.Accept()
			if err != nil {
				return
			}
			g.carried.Go(func() { _ = g.carry(conn) })
		}
	})
	t.Cleanup(func() { g.listener.Close(); g.carried.Wait() })
	return g
}

func (g *gateway) url() string { return "nats://any:any@" + g.listener.Addr().String() }

// carry connects a client to the current server, until one of them ends.
func (g *gateway) carry(client net.Conn) error {
	defer client.Close()
	end, err := embedded.ReadEndpoint(g.dir)
	if err != nil {
		return err
	}
	server, err := net.Dial("tcp", strings.TrimPrefix(end.URL, "nats://"))
	if err != nil {
		return err
	}
	defer server.Close()
	g.carried.Go(func() {
		_, _ = io.Copy(client, server)
		client.Close()
	})
	from := bufio.NewReader(client)
	greeting, err := from.ReadString('\n')
	if err != nil {
		return err
	}
	if greeting, err = withCredential(greeting, end); err != nil {
		return err
	}
	if _, err = io.WriteString(server, greeting); err == nil {
		_, err = io.Copy(server, from)
	}
	return err
}

// withCredential puts the current credential into a client's first line.
func withCredential(greeting string, end embedded.Endpoint) (string, error) {
	text, ok := strings.CutPrefix(greeting, "CONNECT ")
	if !ok {
		return "", fmt.Errorf("a NATS client begins with CONNECT, not %q", greeting)
	}
	var members map[string]any
	if err := json.Unmarshal([]byte(text), &members); err != nil {
		return "", err
	}
	members["user"], members["pass"] = end.User, end.Password
	b, err := json.Marshal(members)
	return "CONNECT " + string(b) + "\r\n", err
}

// counter is a receiver over real TLS that answers 204, one time in three after a delay, so that faults occur
// in between.
type counter struct {
	url string

	mu    sync.Mutex
	posts map[string][]post // by webhook-id
}

// post is one POST as it came in.
type post struct {
	at   time.Time
	body []byte
}

// witnessPath is the path of the callbacks of a witness, which are not counted.
const witnessPath = "/witness"

const (
	// slowestAnswer is far below a callback's time: an answer that comes too late would be unknown, and no
	// fault would have made it so.
	slowestAnswer = 200 * time.Millisecond
	slowOneIn     = 3
)

func newCounter(t *testing.T, ca *localca.Authority, at net.Listener) *counter {
	t.Helper()
	c := &counter{posts: map[string][]post{}}
	host, _, err := net.SplitHostPort(at.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	cert := must[tls.Certificate](t)(ca.Issue(localca.Certificate{Hosts: []string{host}}))
	s := httptest.NewUnstartedServer(http.HandlerFunc(c.take))
	_ = s.Listener.Close()
	s.Listener = at
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // killed processes break their handshakes
	s.StartTLS()
	t.Cleanup(s.Close)
	c.url = s.URL + demo.CallbackPath
	return c
}

func (c *counter) take(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, witnessPath) {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	got := post{at: time.Now()}
	got.body, _ = io.ReadAll(r.Body)
	id := r.Header.Get("Webhook-Id")
	c.mu.Lock()
	c.posts[id] = append(c.posts[id], got)
	c.mu.Unlock()
	if rand.IntN(slowOneIn) == 0 {
		pass(r.Context(), rand.N(slowestAnswer))
	}
	w.WriteHeader(http.StatusNoContent)
}

// of returns the POSTs of a session.
func (c *counter) of(sid string) []post {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.posts["cb_"+sid])
}

func (c *counter) total() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, posts := range c.posts {
		n += len(posts)
	}
	return n
}

// pass advances the time. It says false if ctx ended first.
func pass(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// yardstick is a process that is never stopped: this one. It records when it ran later than scheduled, as all
// processes of the machine do when they wait for the processor.
type yardstick struct {
	mu   sync.Mutex
	went []time.Time
}

const (
	// yardEvery is the interval of the yardstick.
	yardEvery = 50 * time.Millisecond
	// starved is a wait for the processor that can make a POST too late. Between the last instant at which an
	// owner begins to write and the first at which others may settle are the callback's timeout and 5 s.
	starved = 5 * time.Second
)

func newYardstick(t *testing.T) *yardstick {
	t.Helper()
	y := &yardstick{}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			y.mu.Lock()
			y.went = append(y.went, time.Now())
			y.mu.Unlock()
			if !pass(ctx, yardEvery) {
				return
			}
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return y
}

// waited is the longest time between two instants for which the yardstick did not run.
func (y *yardstick) waited(from, to time.Time) (longest time.Duration) {
	if y == nil {
		return 0
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	for i := 1; i < len(y.went); i++ {
		if y.went[i].After(from) && y.went[i-1].Before(to) {
			longest = max(longest, y.went[i].Sub(y.went[i-1])-yardEvery)
		}
	}
	return longest
}

// victim is a process that gets faults, one at a time: the holder of the lock may inject one.
type victim struct {
	*child
	name string
	rest time.Duration // it gets no fault for this long after a fault, so that work continues

	sync.Mutex
	kills, stops, exits int
	// claims lost to another owner, as far as the process could tell before it was killed
	conflicts int
}

// deployment is the service as several processes: a NATS server, an edge and two dispatchers, and the
// receiver they send to.
type deployment struct {
	store, edge *victim
	dispatchers []*victim
	counter     *counter
	key         string
}

func newDeployment(t *testing.T) *deployment {
	t.Helper()
	store := newStoreProcess(t)
	to := newGateway(t, store.dir).url()
	edge := newChild(t)
	f := &deployment{
		counter: newCounter(t, edge.inbox.ca, must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))),
	}
	edge.env = append(edge.env, "VERIFYD_NATS_URL="+to, "VERIFYD_REPLICAS=1",
		"VERIFYD_SECRET_KEY="+secretbox.NewKey().Encode(),
		"VERIFYD_LOG_LEVEL=info", briefly)
	f.store = &victim{child: store, name: "store", rest: 5 * time.Second}
	for i := range 2 {
		c := &child{
			dir: edge.dir, listen: edge.listen, admin: natstest.Address(t), inbox: edge.inbox,
			argv: edge.argv, log: &buffer{},
		}
		c.env = append(slices.Clone(edge.env), "VERIFYD_ADMIN_LISTEN="+c.admin, "VERIFYD_ROLES=dispatcher")
		c.up = c.readyz
		f.dispatchers = append(f.dispatchers, &victim{
			child: c, name: "dispatcher " + strconv.Itoa(i+1), rest: 500 * time.Millisecond,
		})
	}
	// a line per request would be all that is in there
	edge.env = append(edge.env, "VERIFYD_ROLES=edge", "VERIFYD_LOG_LEVEL=warn")
	f.edge = &victim{child: edge, name: "edge", rest: 2 * time.Second}
	for _, v := range f.all() {
		v.start(t)
	}
	f.key = edge.makeKey(t, "Harbor Guild", "--rate-limit", "100000/s")
	f.api().knownSoon(t)
	return f
}

func (f *deployment) api() api { return api{base: f.edge.base(), key: f.key} }

func (f *deployment) all() []*victim { return append([]*victim{f.store, f.edge}, f.dispatchers...) }

// killed ends the process with kill -9 and starts it again. Before that it is asked what it has counted.
func (v *victim) killed(ctx context.Context) error {
	v.ask(ctx)
	v.kill()
	v.kills++
	return v.run()
}

// stopped pauses the process.
func (v *victim) stopped() error {
	v.stops++
	return v.cmd.Process.Signal(syscall.SIGSTOP)
}

// caught counts how often the process has paused itself.
func (v *victim) caught() int { return strings.Count(v.log.String(), caughtLine) }

func (v *victim) continued() error { return v.cmd.Process.Signal(syscall.SIGCONT) }

// comesUp waits until the process is ready. If it exits by itself it is started again, as an operator's
// supervisor would do.
func (v *victim) comesUp(ctx context.Context) error {
	// longer than a start may take, which may find the store stopped
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	for !v.looksUp(ctx) {
		select {
		case <-v.exited:
			v.exits++
			v.kill() // it was killed already; this waits for its end
			if err := v.run(); err != nil {
				return err
			}
		default:
		}
		if !pass(ctx, 10*time.Millisecond) {
			return fmt.Errorf("the %s does not become ready:\n%s", v.name, v.tail())
		}
	}
	return nil
}

func (v *victim) looksUp(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return v.up(ctx)
}

func (v *victim) tail() string {
	s := v.log.String()
	return s[max(0, len(s)-4000):]
}

var conflictsLine = regexp.MustCompile(`(?m)^verifyd_delivery_claim_conflicts_total (\d+)`)

// ask reads the counters of a dispatcher process, which it loses when it is killed.
func (v *victim) ask(ctx context.Context) {
	if v.admin == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+v.admin+"/metrics", nil)
	if err != nil {
		return
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(q)
	if err != nil {
		return
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if m := conflictsLine.FindSubmatch(b); err == nil && m != nil {
		n, _ := strconv.Atoi(string(m[1]))
		v.conflicts += n
	}
}

// logged counts the log lines of all dispatchers that contain a text.
func (f *deployment) logged(text string) (n int) {
	for _, d := range f.dispatchers {
		n += strings.Count(d.log.String(), text)
	}
	return n
}

// fell names the processes that panicked or had a data race.
func (f *deployment) fell() error {
	var all error
	for _, v := range f.all() {
		for line := range strings.Lines(v.log.String()) {
			if strings.Contains(line, "panic") || strings.Contains(line, "DATA RACE") {
				all = errors.Join(all, fmt.Errorf("%s: %s", v.name, strings.TrimSpace(line)))
			}
		}
	}
	return all
}
