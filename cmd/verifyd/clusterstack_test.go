//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"verifyd/cmd/verifyd/demo"
	"verifyd/natsconf/crashpoint"
	"verifyd/natsconf/natstest"
)

const (
	// askVariable makes a dispatcher ask, at the points at which it can be cut off from NATS, whether it may
	// continue.
	askVariable = "VERIFYD_TEST_ASK"
	// relayVariable, HERE=THERE, makes a process relay its own loopback address to an address outside its
	// container: the dev network listens on the loopback of the machine that runs the test, and is the same
	// issuer for users and edges.
	relayVariable = "VERIFYD_TEST_RELAY"
	// idleVariable makes a process wait until it is ended: commands are run in its container.
	idleVariable = "VERIFYD_TEST_IDLE"

	// stackUp bounds the start of a container until what is in it is ready.
	stackUp = 90 * time.Second
	// dockerWithin bounds one call of docker. Ending a container, including the drain, takes the longest.
	dockerWithin = 60 * time.Second
)

func init() {
	if where := os.Getenv(askVariable); where != "" {
		crashpoint.Hook(func(point string) { askAt(where, point) })
	}
	if os.Getenv(idleVariable) != "" {
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGTERM)
		<-end
		os.Exit(0)
	}
	if here, there, ok := strings.Cut(os.Getenv(relayVariable), "="); ok {
		go func() { fmt.Fprintln(os.Stderr, relayLoopback(here, there)) }()
	}
}

// askAt waits at the two points until the test lets the delivery continue.
func askAt(where, point string) {
	if point != crashpoint.AfterClaim && point != crashpoint.Answered {
		return
	}
	host, _ := os.Hostname()
	if r, err := http.Get(where + "/" + host + "/" + point); err == nil {
		_ = r.Body.Close()
	}
}

func relayLoopback(here, there string) error {
	l, err := net.Listen("tcp", here)
	if err != nil {
		return err
	}
	carryAll(l, there)
	return nil
}

// carryAll connects each connection of a listener with one to another address, until the listener is closed.
func carryAll(l net.Listener, there string) {
	var carried sync.WaitGroup
	defer carried.Wait()
	for {
		from, err := l.Accept()
		if err != nil {
			return
		}
		carried.Go(func() {
			defer from.Close()
			to, err := net.Dial("tcp", there)
			if err != nil {
				return
			}
			defer to.Close()
			carried.Go(func() {
				defer from.Close()
				_, _ = io.Copy(from, to)
			})
			_, _ = io.Copy(to, from)
		})
	}
}

// docker runs a command of docker and returns what it printed.
func docker(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, dockerWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, "docker", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("docker %s: %w: %s", strings.Join(args, " "), err,
			strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// member is one container of the stack.
type member struct {
	name      string // of its service
	container string
	network   string // on which its readiness is checked
	readyPage string // ":PORT/PATH" that it answers with 200 then
}

func (m *member) do(ctx context.Context, args ...string) error {
	_, err := docker(ctx, append(args, m.container)...)
	return err
}

// kill is kill -9, freeze SIGSTOP, thaw SIGCONT. roll ends the process by SIGTERM and starts it again, as an
// upgrade does.
func (m *member) kill(ctx context.Context) error   { return m.do(ctx, "kill") }
func (m *member) start(ctx context.Context) error  { return m.do(ctx, "start") }
func (m *member) freeze(ctx context.Context) error { return m.do(ctx, "kill", "--signal", "STOP") }
func (m *member) thaw(ctx context.Context) error   { return m.do(ctx, "kill", "--signal", "CONT") }
func (m *member) roll(ctx context.Context) error   { return m.do(ctx, "restart", "--time", "45") }

// cut takes the container off a network, so that packets to it vanish; heal puts it back under its name.
func (m *member) cut(ctx context.Context, network string) error {
	_, err := docker(ctx, "network", "disconnect", "--force", network, m.container)
	return err
}

func (m *member) heal(ctx context.Context, network string) error {
	_, err := docker(ctx, "network", "connect", "--alias", m.name, network, m.container)
	return err
}

// address returns where the container is on a network, as the host reaches it.
func (m *member) address(ctx context.Context, network string) (string, error) {
	ip, err := docker(ctx, "inspect", "-f",
		"{{with index .NetworkSettings.Networks \""+network+"\"}}{{.IPAddress}}{{end}}", m.container)
	if _, perr := netip.ParseAddr(ip); err == nil && perr != nil {
		err = fmt.Errorf("%s has no address on %s", m.name, network)
	}
	return ip, err
}

// await waits until what is in the container is ready. It looks up the container's address once, which takes
// a process: nothing changes it afterwards.
func (m *member) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stackUp)
	defer cancel()
	at, err := m.address(ctx, m.network)
	for err != nil || !m.ready(ctx, at) {
		if !pass(ctx, 50*time.Millisecond) {
			logs, _ := exec.Command("docker", "logs", "--tail", "20", m.container).CombinedOutput()
			return fmt.Errorf("%s does not become ready: %w\n%s", m.name, err, logs)
		}
		if err != nil {
			at, err = m.address(ctx, m.network)
		}
	}
	return nil
}

// proof is the stack with this test binary as verifyd, and with users, their network and the receiver on this
// machine.
type proof struct {
	*stack

	stores, edges, dispatchers []*member
	store                      string // the network of NATS
	idle                       string // the operator's container

	counter *counter
	gate    *gate
	door    *door
	key     string
}

// proofHost is the name of the service at the proxy.
const proofHost = "verifyd.localhost"

func newProof(t *testing.T) *proof {
	t.Helper()
	p := &proof{stack: newStack(t)}
	p.store = p.project + "_store"
	p.makeImage(t)
	outside := newInbox(t)
	p.counter = newCounter(t, outside.ca, p.listenOutside(t))
	p.gate = newGate(t, p.listenOutside(t))
	p.door = newDoor(t, p.https)
	issuer := serveIssuer(t, p.door.base())
	at := must[*url.URL](t)(url.Parse(issuer.Issuer()))
	away := p.listenOutside(t)
	relayFrom(t, away, at.Host)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, outside.ca.PEM(), 0o644); err != nil {
		t.Fatal(err)
	}
	p.override(t, ca, map[string]string{
		"VERIFYD_BASE_URL": p.door.base(), "VERIFYD_NETWORK_ISSUER": issuer.Issuer(),
		"VERIFYD_NETWORK_CLIENT_ID":     issuer.Settings().ClientID,
		"VERIFYD_NETWORK_CLIENT_SECRET": issuer.Settings().ClientSecret,
		"VERIFYD_CALLBACK_CA_FILE":      "/receivers.pem",
		"VERIFYD_CALLBACK_ALLOW_CIDRS":  p.gateway + "/32", "VERIFYD_CALLBACK_TIMEOUT": briefTime.String(),
		relayVariable: at.Host + "=" + away.Addr().String(), askVariable: p.gate.url(),
		"VERIFYD_LOG_LEVEL": "warn", // a line per request would be all that is in there
	})
	p.must(t, "up", "--detach")
	for _, name := range []string{"nats-1", "nats-2", "nats-3"} {
		p.stores = append(p.stores, p.member(t, name, "_store", ":8222/healthz"))
	}
	for _, n := range []string{"-1", "-2"} {
		p.edges = append(p.edges, p.member(t, "edge"+n, "_out", ":9090/readyz"))
		p.dispatchers = append(p.dispatchers, p.member(t, "dispatcher"+n, "_out", ":9090/readyz"))
	}
	for _, m := range p.all() {
		if err := m.await(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { p.keepLogs(t) })
	p.door.trust(t, p.edges[0])
	p.door.await(t)
	p.idle = strings.TrimSpace(p.must(t, "run", "--rm", "--detach", "-e", idleVariable+"=1", "operator"))
	must[string](t)(p.operate(t.Context(), "account", "create", "Harbor Guild"))
	p.key = must[string](t)(p.operate(t.Context(), "key", "create", "--account", "Harbor Guild",
		"--rate-limit", "100000/s"))
	for _, e := range p.edges { // the door asks one of them
		at, err := e.address(t.Context(), p.project+"_out")
		if err != nil {
			t.Fatal(err)
		}
		api{base: "http://" + net.JoinHostPort(at, "8080"), key: p.key}.knownSoon(t)
	}
	return p
}

// operate runs a command as an operator, and returns what it printed.
func (p *proof) operate(ctx context.Context, args ...string) (string, error) {
	return docker(ctx, append([]string{"exec", "-e", idleVariable + "=", p.idle, "/verifyd"}, args...)...)
}

func (p *proof) all() []*member { return slices.Concat(p.stores, p.edges, p.dispatchers) }

func (p *proof) member(t *testing.T, name, network, path string) *member {
	t.Helper()
	return &member{name: name, container: p.container(t, name), network: p.project + network, readyPage: path}
}

// override writes the differences from docker-compose.yml: addresses, and the binary. There are no health
// checks, each of which is a process in the container: what is started waits for what it needs, as it has to
// after faults, and the proof waits for all of them.
func (p *proof) override(t *testing.T, ca string, env map[string]string) {
	t.Helper()
	services := map[string]any{}
	for _, name := range []string{"prepare", "operator"} {
		services[name] = map[string]any{"image": p.image()}
	}
	unasked, started := map[string]any{"interval": "24h"}, map[string]any{"condition": "service_started"}
	for _, name := range []string{"edge-1", "edge-2", "dispatcher-1", "dispatcher-2"} {
		services[name] = map[string]any{
			"image": p.image(), "environment": env, "hostname": name, "volumes": []string{
				ca + ":/receivers.pem:ro",
			},
			"healthcheck": unasked,
		}
	}
	for _, name := range []string{"nats-1", "nats-2", "nats-3"} {
		services[name] = map[string]any{"healthcheck": unasked}
	}
	services["apply"] = map[string]any{"image": p.image(), "depends_on": map[string]any{
		"nats-1": started, "nats-2": started, "nats-3": started,
	}}
	services["proxy"] = map[string]any{"healthcheck": unasked, "depends_on": map[string]any{
		"edge-1": started, "edge-2": started,
	}}
	b, err := json.Marshal(map[string]any{"services": services}) // JSON is YAML
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "proof.yml")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	p.files = append(p.files, path)
}

// keepLogs keeps the containers' last lines if the proof failed.
func (p *proof) keepLogs(t *testing.T) {
	if !t.Failed() {
		return
	}
	for _, m := range p.all() {
		lines, _ := exec.Command("docker", "logs", "--tail", "2000", m.container).CombinedOutput()
		path := filepath.Join(os.TempDir(), p.project+"-"+m.name+".log")
		if os.WriteFile(path, lines, 0o600) == nil {
			t.Log("see", path)
		}
	}
}

// listenOutside listens on this machine's address on the containers' network, which need not exist yet.
func (p *proof) listenOutside(t *testing.T) net.Listener {
	t.Helper()
	c := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		return errors.Join(raw.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_IP, syscall.IP_FREEBIND, 1)
		}), err)
	}}
	return must[net.Listener](t)(c.Listen(t.Context(), "tcp", net.JoinHostPort(p.gateway, "0")))
}

// relayFrom makes an address of this machine's loopback reachable from the containers.
func relayFrom(t *testing.T, l net.Listener, there string) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); carryAll(l, there) }()
	t.Cleanup(func() { _ = l.Close(); <-done })
}

func (p *proof) image() string { return p.project + ":proof" }

// makeImage builds an image with this test binary in place of verifyd.
func (p *proof) makeImage(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	binary := filepath.Join(dir, "verifyd")
	if isStatic(os.Args[0]) {
		if err := os.Link(os.Args[0], binary); err != nil {
			copyFile(t, os.Args[0], binary)
		}
	} else {
		cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", binary, "verifyd/cmd/verifyd")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build verifyd: %v\n%s", err, out)
		}
	}
	file := "FROM verifyd:local\nCOPY verifyd /verifyd\nENV " + childVariable + "=1\n"
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "docker", "build", "-q", "-t", p.image(), dir)
	cmd.Env = append(os.Environ(), "DOCKER_BUILDKIT=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	p.images = append(p.images, p.image())
}

// isStatic reports whether a program runs in an image without libraries.
func isStatic(path string) bool {
	f, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	return !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (m *member) ready(ctx context.Context, host string) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err := m.get(ctx, host+m.readyPage)
	return err == nil
}

// get requests a page of the container.
func (m *member) get(ctx context.Context, page string) ([]byte, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+page, nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Do(q)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %d", m.name, r.StatusCode)
	}
	return io.ReadAll(r.Body)
}

// leader returns the NATS server that leads a stream.
func (p *proof) leader(ctx context.Context, stream string) (*member, error) {
	ctx, cancel := context.WithTimeout(ctx, natstest.TestTimeout)
	defer cancel()
	for {
		for _, at := range p.stores {
			name, err := p.leaderAs(ctx, at, stream)
			i := slices.IndexFunc(p.stores, func(m *member) bool { return m.name == name })
			if err == nil && i >= 0 {
				return p.stores[i], nil
			}
		}
		if !pass(ctx, 100*time.Millisecond) {
			return nil, fmt.Errorf("%s has no leader", stream)
		}
	}
}

// leaderAs asks one server, which knows the streams that it has.
func (p *proof) leaderAs(ctx context.Context, at *member, stream string) (string, error) {
	host, err := at.address(ctx, p.store)
	if err != nil {
		return "", err
	}
	b, err := at.get(ctx, host+":8222/jsz?streams=1&accounts=1")
	if err != nil {
		return "", err
	}
	var told struct {
		Accounts []struct {
			Streams []struct {
				Name    string `json:"name"`
				Cluster struct {
					Leader string `json:"leader"`
				} `json:"cluster"`
			} `json:"stream_detail"`
		} `json:"account_details"`
	}
	if err := json.Unmarshal(b, &told); err != nil {
		return "", err
	}
	for _, a := range told.Accounts {
		for _, st := range a.Streams {
			if st.Name == stream {
				return st.Cluster.Leader, nil
			}
		}
	}
	return "", fmt.Errorf("%s does not know %s", at.name, stream)
}

// gate lets the deliveries of the dispatchers pass, unless a trap is set.
type gate struct {
	server *http.Server
	addr   string

	mu    sync.Mutex
	armed map[string]*trap // by /HOST/POINT
}

// trap is sprung by the first delivery that reaches a point.
type trap struct {
	once sync.Once
	do   func()
	hit  chan struct{} // closed when it was sprung
}

func newGate(t *testing.T, l net.Listener) *gate {
	t.Helper()
	g := &gate{armed: map[string]*trap{}}
	g.addr = l.Addr().String()
	g.server = &http.Server{Handler: g, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() { defer close(done); _ = g.server.Serve(l) }()
	t.Cleanup(func() { _ = g.server.Close(); <-done })
	return g
}

func (g *gate) url() string { return "http://" + g.addr }

func (g *gate) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	tr := g.armed[r.URL.Path]
	g.mu.Unlock()
	if tr != nil {
		tr.once.Do(func() { tr.do(); close(tr.hit) }) // all that come meanwhile wait too
	}
}

// arm sets a trap; it stays until it is removed.
func (g *gate) arm(m *member, point string, do func()) *trap {
	tr := &trap{do: do, hit: make(chan struct{})}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.armed["/"+m.name+"/"+point] = tr
	return tr
}

func (g *gate) disarm(m *member, point string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.armed, "/"+m.name+"/"+point)
}

// door admits users of this machine without a name service and without trusting the trial's certificate: it
// forwards each request to the stack's proxy over TLS, under the name that the proxy has.
type door struct {
	listener net.Listener
	roots    atomic.Pointer[x509.CertPool]
	last     atomic.Pointer[error] // why the proxy was not reached
}

func newDoor(t *testing.T, proxy string) *door {
	t.Helper()
	d := &door{listener: must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))}
	transport := &http.Transport{
		MaxIdleConnsPerHost: chaosUsers, ResponseHeaderTimeout: demo.BrowserTimeout,
		DialTLSContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			c := tls.Dialer{
				Config: &tls.Config{
					ServerName: proofHost, RootCAs: d.roots.Load(), MinVersion: tls.VersionTLS12,
				},
			}
			return c.DialContext(ctx, network, proxy)
		},
	}
	hand := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "https", proofHost, proofHost
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			d.last.Store(&err)
			w.WriteHeader(http.StatusBadGateway)
		},
	}
	server := &http.Server{Handler: hand, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(d.listener) }()
	t.Cleanup(func() { _ = server.Close(); <-done; transport.CloseIdleConnections() })
	return d
}

func (d *door) base() string { return "http://" + d.listener.Addr().String() }

// trust reads the trial's authority, which every edge has.
func (d *door) trust(t *testing.T, edge *member) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trial.pem")
	must[string](t)(docker(t.Context(), "cp", edge.container+":/shared/trust/ca.pem", path))
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(must[[]byte](t)(os.ReadFile(path))) {
		t.Fatal("the trial's authority cannot be read")
	}
	d.roots.Store(pool)
}

// await waits until the proxy reaches an edge.
func (d *door) await(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stackUp)
	defer cancel()
	for {
		p, err := demo.NewBrowser().Open(ctx, d.base()+"/?session=none")
		if err == nil && p.Status < http.StatusInternalServerError {
			return
		}
		if !pass(ctx, 50*time.Millisecond) {
			if last := d.last.Load(); last != nil {
				err = *last
			}
			t.Fatalf("the proxy leads to no edge: %v", err)
		}
	}
}
