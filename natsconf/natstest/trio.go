package natstest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest/prove"
)

// Trio is three clustered NATS servers for one test, each a process of its own, so that the test may kill one
// and start it again. Each syncs before it acknowledges, as operators are advised to run theirs.
type Trio struct {
	dir   string
	nodes []*node
	lines *lines // nil: the routes between the servers cannot be cut
}

// node is one server.
type node struct {
	name, dir string
	port      int   // where clients come
	listen    int   // where routes come
	routes    []int // where it makes routes to
	advertise string
	include   string // a file that is part of its configuration; empty: none

	cmd  *exec.Cmd // nil while it does not run
	hold *os.File  // the server ends when its standard input does, which is when this process ends
}

// StartTrio runs three servers until the test ends, for a test of the proof "cluster". They hold nothing yet.
func StartTrio(tb testing.TB) *Trio {
	tb.Helper()
	prove.Only(tb, "cluster", "it runs three NATS servers")
	return StartTrioWith(tb, "")
}

// StartTrioWith is StartTrio for a test of another proof, which it names itself. A file that is named is part
// of each server's configuration, such as one that verifyd prepare has written.
func StartTrioWith(tb testing.TB, include string) *Trio {
	tb.Helper()
	ports, err := takePorts(2 * nodes)
	if err != nil {
		tb.Fatal(err)
	}
	clients, routes := ports[:nodes], ports[nodes:]
	dir := tb.TempDir()
	tr := &Trio{dir: dir}
	for i := range nodes {
		name := fmt.Sprint("n", i+1)
		tr.nodes = append(tr.nodes, &node{
			name: name, dir: filepath.Join(dir, name), port: clients[i], listen: routes[i], routes: routes,
			include: include,
		})
	}
	tb.Cleanup(func() {
		for _, n := range tr.nodes {
			n.kill()
		}
	})
	tr.startAll(tb)
	return tr
}

func (tr *Trio) startAll(tb testing.TB) {
	tb.Helper()
	var wg sync.WaitGroup
	for _, n := range tr.nodes {
		wg.Go(func() {
			if err := n.start(); err != nil {
				tb.Error(err)
			}
		})
	}
	wg.Wait()
	if tb.Failed() {
		tb.FailNow()
	}
}

// Dir returns the folder in which each server keeps its files, in one of its name.
func (tr *Trio) Dir() string { return tr.dir }

// Names returns the names of the servers.
func (tr *Trio) Names() []string {
	names := make([]string, len(tr.nodes))
	for i, n := range tr.nodes {
		names[i] = n.name
	}
	return names
}

// Others returns the names of the other servers.
func (tr *Trio) Others(name string) []string {
	return slices.DeleteFunc(tr.Names(), func(n string) bool { return n == name })
}

// Address returns where clients reach a server.
func (tr *Trio) Address(name string) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(tr.node(name).port))
}

// URL returns the addresses of these servers, or of all.
func (tr *Trio) URL(names ...string) string {
	if len(names) == 0 {
		names = tr.Names()
	}
	urls := make([]string, len(names))
	for i, name := range names {
		urls[i] = "nats://" + tr.Address(name)
	}
	return strings.Join(urls, ",")
}

// Connect connects to one of these servers, or of all, until the test ends. A connection that is lost comes
// back to any of them.
func (tr *Trio) Connect(tb testing.TB, names ...string) *natsconf.Conn {
	tb.Helper()
	return ConnectTo(tb, tr.URL(names...))
}

// ConnectTo connects to servers until the test ends. The options may be changed, such as the machine's clock.
func ConnectTo(tb testing.TB, url string, change ...func(*natsconf.ConnectOptions)) *natsconf.Conn {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), TestTimeout)
	defer cancel()
	o := natsconf.ConnectOptions{URL: url, Name: tb.Name(), Log: zerolog.Nop()}
	for _, c := range change {
		c(&o)
	}
	conn, err := natsconf.Connect(ctx, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(conn.Close)
	return conn
}

// Kill ends a server by SIGKILL.
func (tr *Trio) Kill(name string) { tr.node(name).kill() }

// Freeze stops a server by SIGSTOP: it says nothing any more, and ends no connection. Kill ends it all the
// same.
func (tr *Trio) Freeze(tb testing.TB, name string) {
	tb.Helper()
	if err := tr.node(name).cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		tb.Fatal(err)
	}
}

// Thaw lets a server go on that was frozen.
func (tr *Trio) Thaw(tb testing.TB, name string) {
	tb.Helper()
	if err := tr.node(name).cmd.Process.Signal(syscall.SIGCONT); err != nil {
		tb.Fatal(err)
	}
}

// Reload has the servers read their configuration again, as nats-server --signal reload does. It does not
// wait for them.
func (tr *Trio) Reload(tb testing.TB) {
	tb.Helper()
	for _, n := range tr.nodes {
		if err := n.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			tb.Fatal(err)
		}
	}
}

// Start runs a server that was killed again, on the store it had.
func (tr *Trio) Start(tb testing.TB, name string) {
	tb.Helper()
	if err := tr.node(name).start(); err != nil {
		tb.Fatal(err)
	}
}

func (tr *Trio) node(name string) *node {
	i := slices.IndexFunc(tr.nodes, func(n *node) bool { return n.name == name })
	return tr.nodes[i]
}

func (n *node) start() error {
	conf, err := n.configure()
	if err != nil {
		return err
	}
	cmd := exec.Command(os.Args[0]) //nolint:gosec // this very test binary
	cmd.Env = append(os.Environ(), nodeVariable+"="+conf)
	hold, ready, err := startChild(cmd)
	if err != nil {
		return err
	}
	defer func() { _ = ready.Close() }()
	n.cmd, n.hold = cmd, hold
	if _, err := bufio.NewReader(ready).ReadString('\n'); err != nil {
		return fmt.Errorf("server %s did not start: %w", n.name, err)
	}
	return nil
}

func (n *node) kill() {
	if n.cmd == nil {
		return
	}
	_ = n.cmd.Process.Kill()
	_ = n.cmd.Wait()
	_ = n.hold.Close()
	n.cmd = nil
}

// leaderPoll is the pause between two questions for a leader.
const leaderPoll = 20 * time.Millisecond

// Leader waits until a server leads a stream, and returns its name.
func Leader(tb testing.TB, c *natsconf.Conn, stream string) string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), TestTimeout)
	defer cancel()
	for {
		if name, err := leader(ctx, c, stream); err == nil {
			return name
		}
		select {
		case <-time.After(leaderPoll):
		case <-ctx.Done():
			tb.Fatalf("nobody leads %s", stream)
		}
	}
}

func leader(ctx context.Context, c *natsconf.Conn, stream string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	s, err := c.JS.Stream(ctx, stream)
	if err != nil {
		return "", err
	}
	if cluster := s.CachedInfo().Cluster; cluster != nil && cluster.Leader != "" {
		return cluster.Leader, nil
	}
	return "", errors.New("no leader")
}

// StepDown has the server that leads a stream step down, waits until another one leads, and returns its
// name.
func StepDown(tb testing.TB, c *natsconf.Conn, stream string) string {
	tb.Helper()
	before := Leader(tb, c, stream)
	ctx, cancel := context.WithTimeout(tb.Context(), TestTimeout)
	defer cancel()
	for {
		// The order is obeyed before the next leader is known: it would step down as well if it were
		// repeated.
		if stepDown(ctx, c, stream, "") {
			if name := Leader(tb, c, stream); name != before {
				return name
			}
		}
		select {
		case <-time.After(leaderPoll):
		case <-ctx.Done():
			tb.Fatalf("%s goes on leading %s", before, stream)
		}
	}
}

// Lead has a server lead a stream: leaders that step down without a preference may choose the same two again
// and again.
func Lead(tb testing.TB, c *natsconf.Conn, stream, name string) {
	tb.Helper()
	Await(tb, name+" leads "+stream, func() bool {
		if Leader(tb, c, stream) == name {
			return true
		}
		stepDown(tb.Context(), c, stream, name)
		return false
	})
}

// stepDown reports whether a leader took the order to step down, in favour of a server if one is named.
func stepDown(ctx context.Context, c *natsconf.Conn, stream, preferred string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var order []byte
	if preferred != "" {
		order = fmt.Appendf(nil, `{"placement":{"preferred":%q}}`, preferred)
	}
	m, err := c.NC.RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN."+stream, order)
	return err == nil && strings.Contains(string(m.Data), `"success":true`)
}

// Unrest has the leaders of streams step down again and again, with a pause in between, until the test ends
// or stop is called. changes returns how often one did.
func (tr *Trio) Unrest(tb testing.TB, pause time.Duration, streams ...string) (changes func() int64,
	stop func()) {
	tb.Helper()
	c := tr.Connect(tb)
	ctx, cancel := context.WithCancel(context.Background())
	var count atomic.Int64
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ctx.Err() == nil; i++ {
			if stepDown(ctx, c, streams[i%len(streams)], "") {
				count.Add(1)
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
	}()
	stop = func() { cancel(); <-ended }
	tb.Cleanup(stop)
	return count.Load, stop
}

// routesTo makes the routes to the servers of a cluster.
func routesTo(ports []int) []*url.URL {
	urls := make([]*url.URL, len(ports))
	for i, port := range ports {
		urls[i] = &url.URL{Scheme: "nats-route", Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
	}
	return urls
}
