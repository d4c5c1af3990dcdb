package callback

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode"

	"verifyd/sessions/urlpolicy"
	"verifyd/sessions/wire"
)

// Proxy is an egress proxy that callbacks leave through. It may hold a password, which is never shown. It is
// immutable.
type Proxy struct {
	address       string // host:port
	host          string // what its certificate must be for
	secure        bool   // it is spoken to over TLS
	authorization string // Proxy-Authorization (RFC 9110 §11.7.2); empty: none
}

// ParseProxy reads "http://[user:password@]host:port", or https:// if the proxy itself is spoken to over TLS.
// An error describes what is wrong and never shows the value.
func ParseProxy(raw string) (*Proxy, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, errors.New("the value is not a URL") // url.Error would show the password
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("the value does not begin with http:// or https://")
	case u.Hostname() == "":
		return nil, errors.New("the value names no host")
	case err != nil || port == 0:
		return nil, errors.New("the value names no port from 1 to 65535")
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, errors.New("the value goes on after the port")
	}
	authorization, err := basic(u.User)
	if err != nil {
		return nil, err
	}
	return &Proxy{
		address: net.JoinHostPort(u.Hostname(), u.Port()), host: u.Hostname(), secure: u.Scheme == "https",
		authorization: authorization,
	}, nil
}

// basic makes the credentials of Basic authentication (RFC 7617 §2), which cannot carry every user name.
func basic(user *url.Userinfo) (string, error) {
	if user == nil {
		return "", nil
	}
	password, _ := user.Password()
	switch pair := user.Username() + ":" + password; {
	case strings.Contains(user.Username(), ":"):
		return "", errors.New("the user name has a colon in it, which Basic authentication cannot carry")
	case strings.ContainsFunc(pair, unicode.IsControl):
		return "", errors.New("user name or password has a control character in it, which Basic " +
			"authentication does not allow")
	default:
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(pair)), nil
	}
}

// String keeps the password out of logs.
func (p *Proxy) String() string { return "egress proxy " + p.address }

// gateway is a client's way through its egress proxy.
type gateway struct {
	proxy  *Proxy
	policy *urlpolicy.Policy
	dialer net.Dialer  // without the guard: the operator chooses where the proxy is
	tls    *tls.Config // nil: the proxy is spoken to in the clear
	agent  string
}

func newGateway(c Config) *gateway {
	g := &gateway{
		proxy: c.Proxy, policy: c.Policy, agent: c.UserAgent, dialer: net.Dialer{
			KeepAlive: -1, Resolver: c.Resolver,
		},
	}
	if c.Proxy.secure {
		g.tls = &tls.Config{
			RootCAs:          c.RootCAs,
			VerifyConnection: c.VerifyProxy,
			MinVersion:       tls.VersionTLS12,
			ServerName:       c.Proxy.host,
			NextProtos:       []string{"http/1.1"},
			// Apart from the receivers': sessions are kept by name, and a receiver may share the proxy's.
			ClientSessionCache:          tls.NewLRUClientSessionCache(1),
			DynamicRecordSizingDisabled: true,
		}
	}
	return g
}

// proxyFault is returned if the egress proxy opened no tunnel.
type proxyFault struct {
	during phase
	status int   // what it answered; 0 if there was no answer
	err    error // why there was none
}

// phase is how far the exchange with the proxy had come.
type phase string

const (
	connecting  phase = "connect"
	handshaking phase = "handshake"
	asking      phase = "ask"
)

// Error returns phase and cause.
func (f *proxyFault) Error() string {
	if f.status != 0 {
		return "egress proxy: " + statusText(f.status)
	}
	return fmt.Sprintf("egress proxy: %s: %v", f.during, f.err)
}

// Unwrap returns the cause.
func (f *proxyFault) Unwrap() error { return f.err }

// own reports whether the fault is the proxy's own, or that of our credentials for it. Any other answer is
// about the requested address, and the proxy may answer otherwise for the next one.
func (f *proxyFault) own() bool { return f.status == 0 || f.status == http.StatusProxyAuthRequired }

// tunnel opens a way to a receiver's address through the proxy (CONNECT, RFC 9110 §9.3.6). The proxy gets the
// address that was judged here, never a name: it would resolve the name again, and the address that was
// checked would not be the one that is dialled.
func (g *gateway) tunnel(ctx context.Context, to netip.AddrPort) (path, error) {
	if err := g.policy.CheckAddr(to); err != nil {
		return path{}, err
	}
	p, err := g.reach(ctx)
	if err != nil {
		return path{}, err
	}
	if err := g.enter(ctx, &p, to); err != nil {
		p.close()
		return path{}, err
	}
	return p, nil
}

// ReachProxy connects to the egress proxy and asks it for nothing. The error is why it could not.
func (c *Client) ReachProxy(ctx context.Context) error {
	p, err := c.gateway.reach(ctx)
	if err != nil {
		return errors.Unwrap(err)
	}
	p.close()
	return nil
}

// reach connects to the proxy, over TLS if it is spoken to in that way.
func (g *gateway) reach(ctx context.Context) (path, error) {
	p, err := dialPath(ctx, g.dialer.DialContext, g.proxy.address)
	if err != nil {
		return path{}, &proxyFault{during: connecting, err: err}
	}
	if g.tls == nil {
		return p, nil
	}
	p.outer = &wire.Records{Conn: p.wire}
	session := tls.Client(p.outer, g.tls)
	if err := session.HandshakeContext(ctx); err != nil {
		p.close()
		return path{}, &proxyFault{during: handshaking, err: err}
	}
	p.over = session
	return p, nil
}

// enter turns the way to the proxy into one to the receiver.
func (g *gateway) enter(ctx context.Context, p *path, to netip.AddrPort) error {
	stop := context.AfterFunc(ctx, p.close)
	status, err := g.ask(p.over, to)
	if !stop() {
		status, err = 0, ctx.Err() // whatever was read, the connection is closed
	}
	if err != nil || status > 299 {
		return &proxyFault{during: asking, status: status, err: err}
	}
	return nil
}

// ask sends CONNECT and reads the answer: the status line and, for a 2xx, the header with the empty line
// after it. It reads not one byte more, since the rest is the receiver's. Its Content-Length means nothing
// (RFC 9110 §9.3.6).
func (g *gateway) ask(conn io.ReadWriter, to netip.AddrPort) (status int, err error) {
	request := "CONNECT " + to.String() + " HTTP/1.1\r\nHost: " + to.String() + "\r\nUser-Agent: " + g.agent +
		"\r\n"
	if g.proxy.authorization != "" {
		request += "Proxy-Authorization: " + g.proxy.authorization + "\r\n"
	}
	if _, err := io.WriteString(conn, request+"\r\n"); err != nil {
		return 0, err
	}
	in := newReader(byteReader{conn}, theProxy)
	if err := in.readStatus(); err != nil {
		return 0, err
	}
	if in.status > 299 {
		return in.status, nil // the rest changes nothing
	}
	if err := in.skipHeader(); err != nil {
		return 0, in.bounded(err)
	}
	return in.status, nil
}

// byteReader returns one byte at a time, so that a buffer above it never holds more than the requested line.
// An answer to CONNECT is short, and there is one for each connection.
type byteReader struct{ r io.Reader }

// Read returns the next byte.
func (s byteReader) Read(b []byte) (int, error) { return s.r.Read(b[:min(1, len(b))]) }
