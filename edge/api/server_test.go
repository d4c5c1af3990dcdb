package api

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"verifyd/edge/request"
	"verifyd/edge/web"
	"verifyd/natsconf/natstest"
)

// patience bounds every wait of these tests; none of them needs it.
const patience = natstest.TestTimeout

func hello() http.Handler { return plain(http.StatusOK, "hello") }

// fetch asks the server once, on a connection of its own.
func fetch(t *testing.T, s *web.Server, path string) (answer, error) {
	t.Helper()
	client := newClient(t)
	req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet,
		"http://"+s.Addr()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	return answer{status: resp.StatusCode, header: resp.Header, body: string(b)}, err
}

// dial opens a raw connection that fails rather than hangs.
func dial(t *testing.T, s *web.Server) net.Conn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// wantClosed reads until the server hangs up, and returns what it said before.
func wantClosed(t *testing.T, conn net.Conn) string {
	t.Helper()
	b, err := io.ReadAll(conn)
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		t.Fatalf("the server did not hang up; it said %q", b)
	}
	return string(b)
}

func TestServerRestartsOnTheSamePort(t *testing.T) {
	t.Parallel()
	s, stop := startServer(t, web.ServerConfig{
		Name: "public", Listen: "127.0.0.1:0", Handler: hello(), Log: zerolog.Nop(),
	})
	addr := s.Addr()
	for range 3 {
		if err := s.Check(); err != nil {
			t.Errorf("while serving: %v", err)
		}
		if a, err := fetch(t, s, "/"); err != nil || a.body != "hello" {
			t.Fatalf("%+v, %v", a, err)
		}
		stop()
		if err := s.Check(); !errors.Is(err, web.ErrNotServing) {
			t.Errorf("after the stop: %v", err)
		}
		if conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr); err == nil {
			_ = conn.Close()
			t.Fatal("a stopped server listens")
		}
		stop = natstest.Serve(t, s)
		awaitReady(t, s)
		if s.Addr() != addr {
			t.Fatalf("the address moved from %s to %s", addr, s.Addr())
		}
	}
}

func TestServerTakesOverAnOpenListener(t *testing.T) {
	t.Parallel()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, stop := startServer(t, web.ServerConfig{
		Name: "public", Listen: "127.0.0.1:0", Listener: ln, Handler: hello(), Log: zerolog.Nop(),
	})
	for range 2 { // the second time it listens by itself
		if s.Addr() != ln.Addr().String() {
			t.Fatalf("the address is %s, want the listener's %s", s.Addr(), ln.Addr())
		}
		if a, err := fetch(t, s, "/"); err != nil || a.body != "hello" {
			t.Fatalf("%+v, %v", a, err)
		}
		stop()
		stop = natstest.Serve(t, s)
		awaitReady(t, s)
	}
}

func TestServerReportsWhyItCannotListen(t *testing.T) {
	t.Parallel()
	taken, _ := startServer(t, web.ServerConfig{
		Name: "one", Listen: "127.0.0.1:0", Handler: hello(), Log: zerolog.Nop(),
	})
	other, err := web.NewServer(web.ServerConfig{
		Name: "two", Listen: taken.Addr(), Handler: hello(), Log: zerolog.Nop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Serve(t.Context()); err == nil || !strings.Contains(err.Error(), "listen for two") ||
		!strings.Contains(err.Error(), taken.Addr()) {
		t.Errorf("err = %v", err)
	}
	for _, listen := range []string{"", "8080", "localhost", "a:b:c"} {
		if _, err := web.NewServer(web.ServerConfig{Listen: listen, Handler: hello()}); err == nil ||
			!strings.Contains(err.Error(), "host:port") {
			t.Errorf("listen address %q: %v", listen, err)
		}
	}
	if _, err := web.NewServer(web.ServerConfig{Listen: "127.0.0.1:0"}); err == nil {
		t.Error("a server without a handler was made")
	}
}

// gate is a handler that reports when a request is in, and holds it until released or aborted.
type gate struct{ in, out chan struct{} }

func newGate() *gate { return &gate{in: make(chan struct{}, 10), out: make(chan struct{})} }

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.in <- struct{}{}
	select {
	case <-g.out:
		_, _ = io.WriteString(w, "whole")
	case <-r.Context().Done():
		g.in <- struct{}{}
	}
}

type outcome struct {
	a   answer
	err error
}

func TestServerDrains(t *testing.T) {
	g := newGate()
	d, err := web.NewServer(web.ServerConfig{Name: "draining", Listen: "127.0.0.1:0", Handler: g,
		Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- d.Serve(ctx) }()
	awaitReady(t, d)
	under := make(chan outcome, 1)
	go func() {
		a, err := fetch(t, d, "/")
		under <- outcome{a, err}
	}()
	<-g.in
	cancel()
	refused(t, d)
	if err := d.Check(); !errors.Is(err, web.ErrNotServing) {
		t.Errorf("while draining: %v", err)
	}
	select {
	case err := <-served:
		t.Fatalf("Serve returned with a request under way: %v", err)
	default:
	}
	close(g.out)
	if o := <-under; o.err != nil || o.a.body != "whole" {
		t.Errorf("the request under way got %+v, %v", o.a, o.err)
	}
	if err := <-served; !errors.Is(err, context.Canceled) {
		t.Errorf("Serve = %v", err)
	}
}

// refused waits until the server accepts no connections any more.
func refused(t *testing.T, s *web.Server) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		conn, err := net.DialTimeout("tcp", s.Addr(), time.Second)
		if err != nil {
			return
		}
		_ = conn.Close()
	}
	t.Fatal("the server still takes connections")
}

func TestServerCutsWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	g := newGate()
	s, stop := startServer(t, web.ServerConfig{
		Name: "public", Listen: "127.0.0.1:0", Handler: g, Log: zerolog.Nop(),
		DrainTimeout: 50 * time.Millisecond,
	})
	under := make(chan outcome, 1)
	go func() {
		a, err := fetch(t, s, "/")
		under <- outcome{a, err}
	}()
	<-g.in
	stop()
	select {
	case <-g.in: // the handler saw its context end, before Serve returned
	default:
		t.Error("Serve returned before the handler did")
	}
	if o := <-under; o.err == nil && o.a.body == "whole" {
		t.Errorf("the request got %+v", o.a)
	}
}

// While it lingers, a stopping server reports that, and still answers.
func TestServerLingersForTheLoadBalancer(t *testing.T) {
	g := newGate()
	close(g.out)
	s, err := web.NewServer(web.ServerConfig{
		Name: "public", Listen: "127.0.0.1:0", Handler: g, Log: zerolog.Nop(),
		DrainDelay: 300 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	awaitReady(t, s)
	began := time.Now()
	cancel()
	for s.Check() == nil {
		if time.Since(began) > patience {
			t.Fatal("the server is still ready")
		}
	}
	a, err := fetch(t, s, "/")
	if time.Since(began) < 200*time.Millisecond && (err != nil || a.body != "whole") {
		t.Errorf("while lingering: %+v, %v", a, err)
	}
	<-served
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("the server lingered for %s only", took)
	}
}

func TestSlowClientsAreCutOff(t *testing.T) {
	read := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, p := request.Body(r); p != nil {
			web.WriteProblem(w, r, p)
		}
	})
	// Each row waits for one of the timeouts: earlier steps may take long.
	const short = 200 * time.Millisecond
	inHeader, inBody := web.ServerConfig{ReadHeaderTimeout: short}, web.ServerConfig{ReadTimeout: short}
	idle := web.ServerConfig{IdleTimeout: short}
	const header = "POST / HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 100\r\n"
	for name, row := range map[string]struct {
		config       web.ServerConfig
		sent, status string
	}{
		"nothing":       {inHeader, "", ""},
		"half a line":   {inHeader, "POST / HT", ""},
		"half a header": {inHeader, header, ""},
		"half a body":   {inBody, header + "\r\n{\"platform\":", "HTTP/1.1 408 "},
		"then idle": {
			idle, "GET / HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n\r\n", "HTTP/1.1 200 ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := row.config
			c.Name, c.Listen, c.Handler, c.Log = "public", "127.0.0.1:0", read, zerolog.Nop()
			s, _ := startServer(t, c)
			conn := dial(t, s)
			if _, err := io.WriteString(conn, row.sent); err != nil {
				t.Fatal(err)
			}
			got := wantClosed(t, conn)
			if !strings.HasPrefix(got, row.status) || row.status == "" && strings.Contains(got, " 200 ") {
				t.Errorf("the server said %q, want %q…", got, row.status)
			}
			if row.status == "HTTP/1.1 408 " && !strings.Contains(got, `"code":"request_timeout"`) {
				t.Errorf("no problem document: %q", got)
			}
		})
	}
}

// A client that does not read its answer is cut off as well.
func TestSlowReadersAreCutOff(t *testing.T) {
	t.Parallel()
	wrote := make(chan error, 1)
	endless := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		chunk := make([]byte, 1<<16)
		for {
			if _, err := w.Write(chunk); err != nil {
				wrote <- err
				return
			}
		}
	})
	s, _ := startServer(t, web.ServerConfig{
		Name: "public", Listen: "127.0.0.1:0", Handler: endless, Log: zerolog.Nop(),
		WriteTimeout: 100 * time.Millisecond,
	})
	if _, err := io.WriteString(dial(t, s), "GET / HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-wrote:
	case <-time.After(patience):
		t.Error("the server still writes")
	}
}

func TestBodyThatEndsEarly(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	conn, ok := dial(t, s.server).(*net.TCPConn)
	if !ok {
		t.Fatal("not TCP")
	}
	_, err := io.WriteString(conn, "POST /verify/init HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer "+acmeKey+
		"\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"platform\":")
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got := wantClosed(t, conn); !strings.HasPrefix(got, "HTTP/1.1 400 ") ||
		!strings.Contains(got, "announced length") {
		t.Errorf("the server said %q", got)
	}
}

func TestLargeHeadersAreRefused(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	conn := dial(t, s.server)
	go func() {
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: h\r\nX: "+strings.Repeat("x", 64<<10)+"\r\n\r\n")
	}()
	status, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.HasPrefix(status, "HTTP/1.1 431 ") {
		t.Errorf("the server said %q, %v", status, err)
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	g := newGate()
	s, _ := startServer(t, web.ServerConfig{
		Name: "public", Listen: "127.0.0.1:0", Handler: g, Log: zerolog.Nop(), MaxConns: 2,
	})
	var held []net.Conn
	for range 2 {
		conn := dial(t, s)
		if _, err := io.WriteString(conn,
			"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		<-g.in
		held = append(held, conn)
	}
	third := dial(t, s)
	// may find it closed already
	_, _ = io.WriteString(third, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
	if got := wantClosed(t, third); got != "" {
		t.Errorf("the third connection got %q", got)
	}
	if len(g.in) > 0 {
		t.Error("the third connection's request was answered")
	}
	close(g.out)
	for _, conn := range held {
		if got := wantClosed(t, conn); !strings.HasSuffix(got, "whole") {
			t.Errorf("a connection within the bound got %q", got)
		}
	}
	// For the client the two have ended; the server counts that a moment later.
	for deadline := time.Now().Add(patience); ; {
		if a, err := fetch(t, s, "/"); err == nil && a.body == "whole" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the places do not become free")
		}
	}
}
