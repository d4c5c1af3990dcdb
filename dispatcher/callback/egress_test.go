package callback_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"verifyd/dispatcher/callback"
	"verifyd/dispatcher/callback/localca"
	"verifyd/natsconf/natstest"
)

// egress is a real egress proxy on loopback that records what it is asked for and behaves as the test says.
type egress struct {
	listener net.Listener
	config   *tls.Config // nil: plaintext
	// greet takes over a connection before anything is read; nil: requests are read.
	greet func(net.Conn)
	// answer is called for each request; nil: forward.
	answer func(egressConn, string)

	mu    sync.Mutex
	asked []*http.Request
	open  map[net.Conn]bool
	conns int
	wg    sync.WaitGroup
}

// egressConn is the proxy's side of a connection from the client.
type egressConn struct {
	net.Conn // with TLS if the proxy has it
	tcp      *net.TCPConn
	proxy    *egress
}

func (c egressConn) say(s string) { _, _ = io.WriteString(c, s) }

func (c egressConn) reset() {
	_ = c.tcp.SetLinger(0)
	_ = c.tcp.Close()
}

// hold waits until the client has left.
func (c egressConn) hold() { _, _ = io.Copy(io.Discard, c) }

const established = "HTTP/1.1 200 Connection established\r\n\r\n"

// forward does what a correct proxy does.
func (c egressConn) forward(target string) { c.forwardAfter(established, target) }

func (c egressConn) forwardAfter(answer, target string) {
	far, err := net.DialTimeout("tcp", target, 10*time.Second)
	if err != nil {
		c.say("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
		return
	}
	if !c.proxy.hold(far) {
		return
	}
	c.say(answer)
	c.proxy.wg.Go(func() {
		_, _ = io.Copy(c, far)
		_, _ = c.tcp.Close(), far.Close()
	})
	_, _ = io.Copy(far, c)
	_, _ = far.Close(), c.tcp.Close()
}

// startEgress runs a proxy; with TLS towards its clients if config is not nil.
func startEgress(t *testing.T, config *tls.Config, answer func(egressConn, string)) *egress {
	t.Helper()
	return startEgressGreeting(t, config, nil, answer)
}

func startEgressGreeting(t *testing.T, config *tls.Config, greet func(net.Conn),
	answer func(egressConn, string)) *egress {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if answer == nil {
		answer = egressConn.forward
	}
	e := &egress{listener: listener, config: config, greet: greet, answer: answer, open: map[net.Conn]bool{}}
	e.wg.Go(e.accept)
	t.Cleanup(func() { e.stop() })
	return e
}

// proxyTLS is a configuration for a proxy's own certificate.
func proxyTLS(t *testing.T, hosts ...string) *tls.Config {
	t.Helper()
	return &tls.Config{Certificates: []tls.Certificate{mustIssue(t, localca.Certificate{Hosts: hosts})}}
}

func (e *egress) accept() {
	for {
		conn, err := e.listener.Accept()
		if err != nil {
			return
		}
		if !e.hold(conn) {
			continue
		}
		e.mu.Lock()
		e.conns++
		e.mu.Unlock()
		e.wg.Go(func() {
			e.serve(conn.(*net.TCPConn))
			_ = conn.Close()
		})
	}
}

// hold registers a connection to be closed at the end; false if the end has come already.
func (e *egress) hold(conn net.Conn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.open == nil {
		_ = conn.Close()
		return false
	}
	e.open[conn] = true
	return true
}

func (e *egress) serve(tcp *net.TCPConn) {
	if e.greet != nil {
		e.greet(tcp)
		return
	}
	c := egressConn{Conn: tcp, tcp: tcp, proxy: e}
	if e.config != nil {
		c.Conn = tls.Server(tcp, e.config)
	}
	request, err := http.ReadRequest(bufio.NewReader(c)) // a client sends no more before it is answered
	if err != nil {
		return
	}
	e.mu.Lock()
	e.asked = append(e.asked, request)
	e.mu.Unlock()
	e.answer(c, request.RequestURI)
}

// requests returns the requests so far.
func (e *egress) requests() []*http.Request {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.asked)
}

// targets returns the targets of the tunnels so far.
func (e *egress) targets() []string {
	var all []string
	for _, r := range e.requests() {
		all = append(all, r.Method+" "+r.RequestURI)
	}
	return all
}

// cut ends every connection that is open.
func (e *egress) cut() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for conn := range e.open {
		_ = conn.Close()
	}
}

// isLeft waits until the clients have closed all their connections by themselves.
func (e *egress) isLeft() bool {
	_ = e.listener.Close()
	done := make(chan struct{})
	go func() { defer close(done); e.wg.Wait() }()
	select {
	case <-done:
		return true
	case <-time.After(natstest.TestTimeout):
		return false
	}
}

// stop ends everything. It may be repeated.
func (e *egress) stop() {
	_ = e.listener.Close()
	e.cut()
	e.mu.Lock()
	e.open = nil
	e.mu.Unlock()
	e.wg.Wait()
}

// value returns the setting that leads to the proxy.
func (e *egress) value(credentials string) string {
	scheme := "http://"
	if e.config != nil {
		scheme = "https://"
	}
	return scheme + credentials + e.listener.Addr().String()
}

func (e *egress) proxy(t *testing.T) *callback.Proxy { return mustProxy(t, e.value("")) }

func mustProxy(t *testing.T, raw string) *callback.Proxy {
	t.Helper()
	p, err := callback.ParseProxy(raw)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// clientThrough returns a client whose callbacks leave through a proxy.
func clientThrough(p *callback.Proxy, timeout time.Duration) *callback.Client {
	return callback.New(callback.Config{
		RootCAs: authority.Pool(), Policy: loopback, Timeout: timeout, UserAgent: "verifyd/test", Proxy: p,
	})
}

// bothWays runs a test through a plaintext proxy, and through a proxy with TLS.
func bothWays(t *testing.T, run func(t *testing.T, config *tls.Config)) {
	t.Helper()
	t.Run("http", func(t *testing.T) {
		t.Parallel() // in parallel with the other: some tests are waits
		run(t, nil)
	})
	t.Run("https", func(t *testing.T) {
		t.Parallel()
		run(t, proxyTLS(t, "127.0.0.1", "proxy.example"))
	})
}

// says returns a behaviour that answers and then waits for the client to leave.
func says(parts ...string) func(egressConn, string) {
	return func(c egressConn, _ string) {
		c.say(strings.Join(parts, ""))
		c.hold()
	}
}
