package kept

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"time"

	"verifyd/sessions/wire"
)

// maxHeaderBytes bounds an answer's header, with all informational ones before it.
const maxHeaderBytes = 64 << 10

var errHeader = errors.New("the answer's header is too large")

// conn is a connection. It belongs to one request at a time.
type conn struct {
	of      *Transport
	to      host
	wire    *wire.Wire
	records *wire.Records // nil without TLS
	session net.Conn      // TLS over the wire, or the wire itself
	in      *bufio.Reader // of the session, through Read
	left    int64         // bytes that may still be read for a header
	born    time.Time
	since   time.Time   // when it became idle
	timer   *time.Timer // closes it when it was idle for too long

	// of the request under way
	stop     func() bool // closes it if the context ends
	written  bool        // a byte of it may have left
	answered bool        // a byte has come
}

func newConn(of *Transport, to host, w *wire.Wire) *conn {
	c := &conn{of: of, to: to, wire: w, session: w, born: of.config.Now()}
	c.in = bufio.NewReader(c)
	return c
}

// secure does the TLS handshake. The certificate must be valid for the name.
func (c *conn) secure(ctx context.Context, config *tls.Config) error {
	config = config.Clone()
	config.ServerName = c.to.name
	c.records = &wire.Records{Conn: c.wire}
	session := tls.Client(c.records, config)
	c.session = session
	return session.HandshakeContext(ctx)
}

// quiet reports whether the connection can carry another request: it is not too old, its server has not
// closed it, and nothing has come since the last answer. The wall clock also decides whether it was idle for
// too long, since timers stand still while a machine is suspended.
func (c *conn) quiet() bool {
	now := c.of.config.Now().Round(0)
	return now.Sub(c.born.Round(0)) < maxAge && now.Sub(c.since.Round(0)) < c.of.idleTime &&
		c.in.Buffered() == 0 && c.wire.Probe(c.session) == nil &&
		(c.records == nil || !c.records.Within())
}

// Read reads from the session, within bounds.
func (c *conn) Read(b []byte) (int, error) {
	if c.left <= 0 {
		return 0, errHeader
	}
	n, err := c.session.Read(b[:min(int64(len(b)), c.left)])
	c.left -= int64(n)
	c.answered = c.answered || n > 0
	return n, err
}

// mayGoOnAnother reports whether a request that failed on this connection, which was kept, may be written to
// another one.
func (c *conn) mayGoOnAnother(req *http.Request) bool {
	return !c.written || req.Method == http.MethodGet && !c.answered
}

// exchange writes a request, once, and reads the header of its answer; the answer's body reads on. If it
// fails, the connection is closed.
func (c *conn) exchange(req *http.Request, text []byte) (*http.Response, error) {
	c.stop = context.AfterFunc(req.Context(), func() { _ = c.wire.Close() })
	c.written, c.answered, c.left = false, false, maxHeaderBytes
	resp, err := c.ask(req, text)
	if err != nil {
		c.end()
		return nil, err
	}
	c.left = math.MaxInt64 // the caller bounds the body
	resp.Body = &body{Reader: resp.Body, conn: c, last: resp.Close || req.Close}
	return resp, nil
}

func (c *conn) ask(req *http.Request, text []byte) (*http.Response, error) {
	if err := c.wire.SetDeadline(time.Time{}); err != nil { // the probe's; the context bounds the rest
		return nil, err
	}
	before := c.wire.Sent()
	_, err := c.session.Write(text)
	c.written = c.wire.Sent() != before
	if err != nil {
		return nil, err
	}
	for {
		resp, err := http.ReadResponse(c.in, req)
		switch {
		case err != nil:
			return nil, err
		case resp.StatusCode == http.StatusSwitchingProtocols: // no other was requested
			resp.Close = true
			return resp, nil
		case resp.StatusCode >= http.StatusOK:
			return resp, nil
		}
	}
}

// end closes the connection.
func (c *conn) end() {
	c.stop()
	_ = c.wire.Close() // without a close_notify, which could wait for a peer that reads nothing
}

// body is the body of an answer. If it was read whole, its connection is kept.
type body struct {
	io.Reader

	conn *conn // nil once it no longer belongs to the answer
	last bool  // one of both sides ends the connection with this answer
}

func (b *body) Read(p []byte) (int, error) {
	if b.conn == nil {
		return 0, io.EOF
	}
	n, err := b.Reader.Read(p)
	switch {
	case errors.Is(err, io.EOF) && !b.last && b.conn.stop():
		b.conn.of.keep(b.conn)
		b.conn = nil
	case err != nil:
		_ = b.Close()
	}
	return n, err
}

// Close closes the connection, unless the answer was read whole.
func (b *body) Close() error {
	if b.conn != nil {
		b.conn.end()
		b.conn = nil
	}
	return nil
}
