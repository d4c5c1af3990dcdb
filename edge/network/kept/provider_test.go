package kept_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"verifyd/edge/network/kept"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// certificate is the provider's, for 127.0.0.1.
var certificate = sync.OnceValue(func() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
})

// provider is a server that speaks TLS and, by hand, HTTP/1.1.
type provider struct {
	net.Listener

	handshakes atomic.Int32
	begun      atomic.Int32 // requests of which a byte arrived
	// serve handles the nth connection, from 0.
	serve func(n int32, c *link)
	ended sync.WaitGroup
}

// link is a connection at the provider.
type link struct {
	*tls.Conn

	p   *provider
	tcp *net.TCPConn
	in  *bufio.Reader
}

func newProvider(t *testing.T, serve func(n int32, c *link)) *provider {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{Listener: l, serve: serve}
	p.ended.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.ended.Wait()
	})
	return p
}

func (p *provider) accept() {
	for {
		conn, err := p.Accept()
		if err != nil {
			return
		}
		p.ended.Go(func() {
			defer func() { _ = conn.Close() }()
			session := tls.Server(conn, &tls.Config{
				Certificates: []tls.Certificate{certificate()}, MinVersion: tls.VersionTLS12,
			})
			if session.Handshake() != nil {
				return
			}
			p.serve(p.handshakes.Add(1)-1, &link{session, p, conn.(*net.TCPConn), bufio.NewReader(session)})
		})
	}
}

// await waits for the first byte of a request.
func (c *link) await() error {
	_, err := c.in.Peek(1)
	if err == nil {
		c.p.begun.Add(1)
	}
	return err
}

// request reads a request, and returns what is to be answered: its path.
func (c *link) request() (string, error) {
	if err := c.await(); err != nil {
		return "", err
	}
	r, err := http.ReadRequest(c.in)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(io.Discard, r.Body)
	return r.URL.Path, err
}

// honest answers requests until the client closes.
func (c *link) honest() {
	for {
		path, err := c.request()
		if err != nil {
			return
		}
		if _, err := io.WriteString(c, answer(path)); err != nil {
			return
		}
	}
}

// answer is an answer with a declared length.
func answer(body string) string {
	return "HTTP/1.1 200 OK\r\nContent-Length: " + string(rune('0'+len(body))) + "\r\n\r\n" + body
}

// chunked is an answer without a declared length.
func chunked(body string) string {
	return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" +
		string(rune('0'+len(body))) + "\r\n" + body +
		"\r\n0\r\n\r\n"
}

// client is a Transport, with its observations and controls for tests.
type client struct {
	*kept.Transport

	t     *testing.T
	url   string
	ahead atomic.Int64 // of the clock

	mu    sync.Mutex
	conns []net.Conn
	wrap  func(*net.TCPConn) net.Conn
}

func newClient(t *testing.T, p *provider) *client {
	t.Helper()
	c := &client{t: t, url: "https://" + p.Addr().String()}
	roots := x509.NewCertPool()
	roots.AddCert(certificate().Leaf)
	c.Transport = kept.New(kept.Config{
		Dial: c.dial, TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		Now: func() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) },
	})
	kept.KeepFor(c.Transport, time.Hour)
	t.Cleanup(c.close)
	return c
}

func (c *client) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns = append(c.conns, conn)
	if c.wrap != nil {
		return c.wrap(conn.(*net.TCPConn)), nil
	}
	return conn, nil
}

// close closes the kept connections, which the provider waits for.
func (c *client) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.Close()
	}
}

// arrived waits until something has arrived on the first connection, without reading it.
func (c *client) arrived() {
	c.t.Helper()
	c.mu.Lock()
	conn := c.conns[0].(*net.TCPConn)
	c.mu.Unlock()
	raw, err := conn.SyscallConn()
	if err != nil {
		c.t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	err = raw.Read(func(fd uintptr) bool {
		_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
		return !errors.Is(err, syscall.EAGAIN)
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

// ask sends a request and reads its answer, which must not hang.
func (c *client) ask(method, path string) (string, error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 20*time.Second)
	defer cancel()
	var body io.Reader
	if method == http.MethodPost {
		body = strings.NewReader("code=one")
	}
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, body)
	if err != nil {
		c.t.Fatal(err)
	}
	resp, err := c.RoundTrip(req)
	if err == nil {
		var b []byte
		b, err = io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err == nil {
			return string(b), nil
		}
	}
	if ctx.Err() != nil {
		c.t.Errorf("%s %s hung", method, path)
	}
	return "", err
}

// must asks and fails unless the answer is the request's own.
func (c *client) must(method, path string) {
	c.t.Helper()
	if got, err := c.ask(method, path); err != nil || got != path {
		c.t.Fatalf("%s %s = %q, %v", method, path, got, err)
	}
}
