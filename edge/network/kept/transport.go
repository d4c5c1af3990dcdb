// Package kept sends requests to identity networks over connections that are kept and reused, and sends no
// request twice. Messages are written and read by net/http, whose Transport is not used (docs/DECISIONS.md).
//
// The law:
//
//  1. A request is written once, in one piece. It goes to a second connection, a new one, if the first was
//     kept and the kernel took not one byte of the request. A GET, which changes nothing (RFC 9110 §9.2.2),
//     also does so if the kept connection ended before one byte of an answer. Nothing else is repeated: if
//     one byte of a POST left, the POST is answered or is an error.
//
//  2. A kept connection belongs to the request that took it, and nothing else reads from it meanwhile. It is
//     checked right before the write: if the other side has closed it, or has sent anything, even the
//     beginning of a record, it is closed and nothing that came is used. An answer to one request is never
//     read as the answer to another.
//
//  3. A connection is kept after an answer that was read whole and that neither side ends it with. It is
//     closed once it was idle for idleTime, and not used again after maxAge: the address of the name and the
//     certificate are checked at the dial.
//
//  4. HTTP/1.1 alone. An HTTP/2 server may claim that it did not process a request and have it sent again;
//     that is a claim and no proof.
package kept

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"time"

	"golang.org/x/net/idna"

	"verifyd/sessions/wire"
)

const (
	handshakeTimeout = 5 * time.Second  // of TLS
	idleTime         = 4 * time.Second  // Apache and Node.js close after 5 s by default
	maxAge           = 10 * time.Minute // the name's address and the certificate are checked as often
	maxIdle          = 64               // connections, in all
	maxIdlePerHost   = 32               // of them, so that no host takes the room of all others
)

// Config is what a Transport is made of.
type Config struct {
	// Dial connects to an address, and judges it. It bounds itself in time.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	TLS  *tls.Config // the name in the certificate is the URL's
	Now  func() time.Time
}

// Transport is an http.RoundTripper. An idle connection closes itself, so it needs no Close.
type Transport struct {
	config   Config
	idleTime time.Duration

	mu    sync.Mutex
	idle  map[host][]*conn // the one that was used last is the last
	count int              // of all of them
}

// host is the destination of a connection.
type host struct{ scheme, name, address string }

// New returns a Transport. It starts nothing.
func New(c Config) *Transport {
	c.TLS = c.TLS.Clone()
	c.TLS.NextProtos = []string{"http/1.1"}
	// Whole records: a request is one record and one system call.
	c.TLS.DynamicRecordSizingDisabled = true
	return &Transport{config: c, idleTime: idleTime, idle: map[host][]*conn{}}
}

// RoundTrip implements http.RoundTripper. A redirect is an answer like any other. The context bounds all of
// it, the answer's body too. If a part of an answer was not read, or it was not closed, its connection is not
// kept.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	var text bytes.Buffer
	if err := req.Write(&text); err != nil { // closes the body
		return nil, err
	}
	to, err := hostOf(req.URL)
	if err != nil {
		return nil, err
	}
	ctx := req.Context()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if c := t.take(to); c != nil {
		got(req, c, true)
		resp, err := c.exchange(req, text.Bytes())
		if err == nil || ctx.Err() != nil || !c.mayGoOnAnother(req) {
			return resp, err
		}
	}
	c, err := t.dial(ctx, to)
	if err != nil {
		return nil, err
	}
	got(req, c, false)
	return c.exchange(req, text.Bytes())
}

// hostOf returns the destination of a URL.
func hostOf(u *url.URL) (host, error) {
	name, err := idna.Lookup.ToASCII(u.Hostname())
	if err != nil {
		name = u.Hostname() // an address, or a name that no resolver will know
	}
	port := u.Port()
	switch {
	case u.Scheme == "https" && port == "":
		port = "443"
	case u.Scheme == "http" && port == "":
		port = "80"
	case u.Scheme != "https" && u.Scheme != "http":
		return host{}, http.ErrNotSupported
	}
	return host{u.Scheme, name, net.JoinHostPort(name, port)}, nil
}

// got reports to the caller's trace which connection the request goes over.
func got(req *http.Request, c *conn, kept bool) {
	if trace := httptrace.ContextClientTrace(req.Context()); trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{Conn: c.session, Reused: kept, WasIdle: kept})
	}
}

// dial opens a new connection.
func (t *Transport) dial(ctx context.Context, to host) (*conn, error) {
	socket, err := t.config.Dial(ctx, "tcp", to.address)
	if err != nil {
		return nil, err
	}
	w, err := wire.New(socket)
	if err != nil {
		_ = socket.Close()
		return nil, err
	}
	c := newConn(t, to, w)
	if to.scheme == "https" {
		ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
		defer cancel()
		if err := c.secure(ctx, t.config.TLS); err != nil {
			_ = w.Close()
			return nil, err
		}
	}
	return c, nil
}

// take returns a kept connection that can carry a request, or nil.
func (t *Transport) take(to host) *conn {
	for {
		c := t.last(to)
		if c == nil || c.quiet() {
			return c
		}
		_ = c.wire.Close()
	}
}

// last takes the connection that was used last from those of a host.
func (t *Transport) last(to host) *conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	idle := t.idle[to]
	if len(idle) == 0 {
		return nil
	}
	c := idle[len(idle)-1]
	t.remove(c)
	return c
}

// remove removes a connection, and reports whether it was there. The caller holds the lock.
func (t *Transport) remove(c *conn) bool {
	idle := t.idle[c.to]
	for i, other := range idle {
		if other != c {
			continue
		}
		c.timer.Stop()
		t.count--
		if idle = append(idle[:i], idle[i+1:]...); len(idle) > 0 {
			t.idle[c.to] = idle
		} else {
			delete(t.idle, c.to)
		}
		return true
	}
	return false
}

// keep keeps a connection for the next request, if there is room.
func (t *Transport) keep(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count >= maxIdle || len(t.idle[c.to]) >= maxIdlePerHost {
		_ = c.wire.Close()
		return
	}
	t.count++
	t.idle[c.to] = append(t.idle[c.to], c)
	c.since = t.config.Now()
	c.timer = time.AfterFunc(t.idleTime, func() { t.expire(c) })
}

// expire closes a connection that was not taken in time.
func (t *Transport) expire(c *conn) {
	t.mu.Lock()
	idle := t.remove(c)
	t.mu.Unlock()
	if idle {
		_ = c.session.Close()
	}
}
