package callback_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"verifyd/dispatcher/callback"
	"verifyd/dispatcher/callback/localca"
	"verifyd/natsconf/natstest"
	"verifyd/sessions"
	"verifyd/sessions/urlpolicy"
)

func TestMain(m *testing.M) {
	// Tests that only wait are parallel. Two kinds are not: those that need one port on two addresses, which
	// another test could have, and those whose receivers or proxies send without end, next to which a
	// handshake may take longer than the other tests' timeouts.
	goleak.VerifyTestMain(natstest.Tests(m))
}

const (
	testSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	testID     = sessions.ID("abcdefghijklmnopqrstuvwxyz234567")

	// quick is the attempt's timeout in tests that wait for it. It leaves a loaded machine time for a
	// handshake.
	quick = 2 * time.Second

	// lasting is the attempt's timeout in tests of what ends sooner: it is longer than peers hold on
	// (holdsOn), so that an attempt that waits for its timeout is seen.
	lasting = 60 * natstest.TestTimeout
)

var (
	authority = mustAuthority()
	loopback  = urlpolicy.NewPolicy([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, nil)
)

func mustAuthority() *localca.Authority {
	a, err := localca.New()
	if err != nil {
		panic(err)
	}
	return a
}

func mustIssue(t *testing.T, c localca.Certificate) tls.Certificate {
	t.Helper()
	cert, err := authority.Issue(c)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// received is one POST as it arrived.
type received struct {
	line   string // request line
	header http.Header
	host   string
	body   []byte
}

// peer is a receiver's side of one connection, after it has read a request.
type peer struct {
	net.Conn // TLS
	tcp      *net.TCPConn
}

func (p peer) say(s string) { _, _ = io.WriteString(p, s) }

// reset ends the connection with a RST; what was sent before is on its way already.
func (p peer) reset() {
	_ = p.tcp.SetLinger(0)
	_ = p.tcp.Close()
}

func (p peer) close() { _ = p.tcp.Close() }

// receiver is a TLS server on loopback that reads requests, counts them, and answers as the test says.
type receiver struct {
	t        *testing.T
	listener net.Listener
	config   *tls.Config
	answer   func(peer) // called after each request; when it returns, the next request is awaited

	mu    sync.Mutex
	posts []received
	open  map[net.Conn]bool
	conns int
	wg    sync.WaitGroup
}

// receive starts a receiver on 127.0.0.1. The config may be nil.
func receive(t *testing.T, config *tls.Config, answer func(peer)) *receiver {
	t.Helper()
	return receiveOn(t, "127.0.0.1:0", config, answer)
}

func receiveOn(t *testing.T, address string, config *tls.Config, answer func(peer)) *receiver {
	t.Helper()
	if config == nil {
		config = &tls.Config{}
	}
	if config.Certificates == nil {
		config.Certificates = []tls.Certificate{
			mustIssue(t, localca.Certificate{Hosts: []string{"127.0.0.1", "hooks.example"}}),
		}
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{t: t, listener: listener, config: config, answer: answer, open: make(map[net.Conn]bool)}
	r.wg.Go(r.accept)
	t.Cleanup(func() { r.stop() })
	return r
}

func (r *receiver) accept() {
	for {
		conn, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		r.open[conn] = true
		r.conns++
		r.mu.Unlock()
		r.wg.Go(func() {
			r.serve(conn)
			_ = conn.Close()
		})
	}
}

func (r *receiver) serve(conn net.Conn) {
	session := tls.Server(conn, r.config)
	if session.Handshake() != nil {
		return
	}
	p := peer{session, conn.(*net.TCPConn)}
	for in := bufio.NewReader(session); ; {
		var raw bytes.Buffer
		request, err := http.ReadRequest(bufio.NewReader(io.TeeReader(oneByOne{in}, &raw)))
		if err != nil {
			return
		}
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return
		}
		line, _, _ := bytes.Cut(raw.Bytes(), []byte("\r\n"))
		r.mu.Lock()
		r.posts = append(r.posts, received{string(line), request.Header, request.Host, body})
		r.mu.Unlock()
		r.answer(p)
	}
}

// oneByOne keeps http.ReadRequest's own buffer from taking bytes of the next request.
type oneByOne struct{ r io.Reader }

func (o oneByOne) Read(b []byte) (int, error) { return o.r.Read(b[:min(1, len(b))]) }

// stop ends everything and returns the POSTs received. It may be repeated.
func (r *receiver) stop() []received {
	_ = r.listener.Close()
	r.mu.Lock()
	for conn := range r.open {
		_ = conn.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
	return r.posts
}

// url returns a callback URL of the receiver.
func (r *receiver) url(t *testing.T) urlpolicy.URL {
	t.Helper()
	return mustURL(t, "https://"+r.listener.Addr().String()+"/verified?token=MARKER")
}

func mustURL(t *testing.T, raw string) urlpolicy.URL {
	t.Helper()
	u, err := loopback.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func newClient(timeout time.Duration) *callback.Client {
	return callback.New(callback.Config{
		RootCAs: authority.Pool(), Policy: loopback, Timeout: timeout, UserAgent: "verifyd/test",
	})
}

func mustPrepare(t *testing.T, c *callback.Client, u urlpolicy.URL) callback.Request {
	t.Helper()
	r, err := c.Prepare(callback.Callback{
		URL: u, Session: testID, PlatformUserID: "u-1", GuildID: "g-1", Verified: true,
		Secrets: []string{testSecret}, At: time.Now(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mustDial(t *testing.T, c *callback.Client, u urlpolicy.URL) *callback.Conn {
	t.Helper()
	cn, err := c.Dial(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cn.Close() })
	return cn
}

// mustNotDial dials and returns the NotSent it must end in.
func mustNotDial(t *testing.T, c *callback.Client, u urlpolicy.URL) *callback.NotSent {
	t.Helper()
	cn, err := c.Dial(t.Context(), u)
	var notSent *callback.NotSent
	if !errors.As(err, &notSent) {
		if cn != nil {
			_ = cn.Close()
		}
		t.Fatalf("Dial = %v; want a NotSent", err)
	}
	return notSent
}

// holdsOn ends peers by stop only when a test is stuck. still reports that they have held on until now, and
// that what has ended meanwhile did not wait for them.
func holdsOn(stop func()) (still func() bool) {
	return time.AfterFunc(natstest.TestTimeout, stop).Stop
}

// attempt makes one whole attempt.
func attempt(ctx context.Context, t *testing.T, c *callback.Client, u urlpolicy.URL) callback.Answer {
	t.Helper()
	cn := mustDial(t, c, u)
	answer := cn.Send(ctx, mustPrepare(t, c, u))
	if answer.Address != cn.Address() || answer.Timing.Total <= 0 {
		t.Errorf("answer without address or time: %+v", answer)
	}
	_ = cn.Close()
	return answer
}

func okAnswer(p peer) { p.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") }
