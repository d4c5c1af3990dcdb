package kept_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
)

// ends are the ways in which a provider ends a connection.
var ends = map[string]func(c *link){
	"close":                 func(c *link) { _ = c.Close() },
	"close without a word":  func(c *link) { _ = c.tcp.Close() },
	"close_notify":          func(c *link) { _ = c.CloseWrite(); c.overhear() },
	"half of the TCP close": func(c *link) { _ = c.tcp.CloseWrite(); c.overhear() },
	"reset": func(c *link) {
		_ = c.tcp.SetLinger(0)
		_ = c.tcp.Close()
	},
}

// overhear counts what arrives on a half-closed connection.
func (c *link) overhear() {
	for {
		if _, err := c.request(); err != nil {
			return
		}
	}
}

// second serves a connection whose second request is handled by f.
func second(f func(c *link)) func(n int32, c *link) {
	return func(n int32, c *link) {
		if n > 0 {
			c.honest()
			return
		}
		path, err := c.request()
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, answer(path))
		f(c)
	}
}

// If a kept connection ends at any byte of the answer, the request arrived once: a POST is answered or is an
// error; a GET is repeated if not one byte of an answer arrived. Nothing hangs, and the next request works.
func TestConnectionThatEndsAtEachByteOfTheAnswer(t *testing.T) {
	t.Parallel()
	for form, whole := range map[string]string{"length": answer("/code"), "chunked": chunked("/code")} {
		for way, end := range ends {
			for n := range len(whole) + 1 {
				for _, method := range []string{http.MethodPost, http.MethodGet} {
					name := fmt.Sprintf("%s, %s, %d bytes, %s", form, way, n, method)
					p := newProvider(t, second(func(c *link) {
						if _, err := c.request(); err != nil {
							return
						}
						_, _ = io.WriteString(c, whole[:n])
						end(c)
					}))
					again := int32(0)
					if method == http.MethodGet && n == 0 {
						again = 1
					}
					c := newClient(t, p)
					c.must(http.MethodPost, "/first")
					got, err := c.ask(method, "/code")
					if err == nil && got != "/code" {
						t.Errorf("%s: %q", name, got)
					}
					came := p.begun.Load() - 1
					if way == "reset" { // removes what was not read yet
						if came > 2 || method == http.MethodPost &&
							(came != 1 || n < len(whole) && err == nil) {
							t.Errorf("%s: it came %d times, %v", name, came, err)
						}
					} else if answered := n == len(whole) || again == 1; answered != (err == nil) ||
						came != 1+again {
						t.Errorf("%s: it came %d times, %v", name, came, err)
					}
					if n < len(whole) { // otherwise the end may be under way
						c.must(http.MethodPost, "/next")
					}
				}
			}
		}
	}
}

// The provider ends the connection after some bytes of the request.
func TestConnectionThatEndsWithinTheRequest(t *testing.T) {
	t.Parallel()
	for way, end := range ends {
		for n := range 90 { // it has some more
			p := newProvider(t, second(func(c *link) {
				if c.await() != nil {
					return
				}
				_, _ = io.ReadFull(c.in, make([]byte, n))
				end(c)
			}))
			c := newClient(t, p)
			c.must(http.MethodPost, "/first")
			if got, err := c.ask(http.MethodPost, "/code"); err == nil {
				t.Errorf("%s after %d bytes: %q", way, n, got)
			}
			// the rest of the request is counted as another one if only one direction was closed
			if came := p.begun.Load() - 1; p.handshakes.Load() != 1 || came < 1 {
				t.Errorf("%s after %d bytes: it came %d times, on %d connections", way, n, came,
					p.handshakes.Load())
			}
			c.must(http.MethodPost, "/next")
		}
	}
}

// A connection that ended while it was idle is not written to: the request arrives once, on another one.
func TestConnectionThatEndsWhileIdle(t *testing.T) {
	for way, end := range ends {
		for _, method := range []string{http.MethodPost, http.MethodGet} {
			idle := make(chan struct{})
			p := newProvider(t, second(func(c *link) {
				<-idle
				end(c)
			}))
			c := newClient(t, p)
			c.must(http.MethodPost, "/first")
			close(idle)
			c.arrived()
			c.must(method, "/code")
			if begun, shakes := p.begun.Load(), p.handshakes.Load(); begun != 2 || shakes != 2 {
				t.Errorf("%s, %s: %d requests came on %d connections", way, method, begun, shakes)
			}
		}
	}
}

// A new connection that ends right after the handshake is an error, whether or not a kept one was there
// before.
func TestConnectionThatEndsAfterTheHandshake(t *testing.T) {
	for way, end := range ends {
		for _, before := range []bool{false, true} {
			idle := make(chan struct{})
			p := newProvider(t, func(n int32, c *link) {
				if before && n == 0 {
					second(func(c *link) {
						<-idle
						_ = c.Close()
					})(n, c)
					return
				}
				end(c)
			})
			c := newClient(t, p)
			shakes := int32(1)
			if before {
				c.must(http.MethodPost, "/first")
				close(idle)
				c.arrived()
				shakes = 2
			}
			if got, err := c.ask(http.MethodPost, "/code"); err == nil {
				t.Errorf("%s: %q", way, got)
			}
			if p.handshakes.Load() != shakes || p.begun.Load() > shakes {
				t.Errorf("%s: %d connections, %d requests", way, p.handshakes.Load(), p.begun.Load())
			}
		}
	}
}

// cutting is a socket that fails once the kernel has accepted a number of bytes.
type cutting struct {
	*net.TCPConn

	on   bool
	left int
}

func (c *cutting) Write(b []byte) (int, error) {
	if !c.on {
		return c.TCPConn.Write(b)
	}
	n, _ := c.TCPConn.Write(b[:min(c.left, len(b))])
	return n, &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}
}

// If the kernel accepted not one byte, the request is sent on a new connection. If it accepted one, it is
// not.
func TestRequestContinuesOnlyIfNothingWasWritten(t *testing.T) {
	for taken, goesOn := range map[int]bool{0: true, 1: false, 30: false} {
		p := newProvider(t, func(_ int32, c *link) { c.honest() })
		c := newClient(t, p)
		var first *cutting
		c.wrap = func(conn *net.TCPConn) net.Conn {
			if first != nil {
				return conn
			}
			first = &cutting{TCPConn: conn, left: taken}
			return first
		}
		c.must(http.MethodPost, "/first")
		first.on = true
		got, err := c.ask(http.MethodPost, "/code")
		if goesOn != (err == nil && got == "/code") {
			t.Errorf("%d bytes taken: %q, %v", taken, got, err)
		}
		want := int32(1)
		if goesOn {
			want = 2
		}
		if p.begun.Load() != want || p.handshakes.Load() != want {
			t.Errorf("%d bytes taken: %d requests on %d connections", taken, p.begun.Load(),
				p.handshakes.Load())
		}
	}
}
