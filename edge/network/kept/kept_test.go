package kept_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"verifyd/edge/network/kept"
)

// Sequential and concurrent requests share connections: as many as there were concurrently.
func TestConnectionsAreUsedAgain(t *testing.T) {
	for _, atOnce := range []int{1, 8} {
		p := newProvider(t, func(_ int32, c *link) { c.honest() })
		c := newClient(t, p)
		var all sync.WaitGroup
		for n := range atOnce {
			all.Go(func() {
				for range 400 / atOnce {
					path := fmt.Sprintf("/%d", n)
					if got, err := c.ask(http.MethodPost, path); err != nil || got != path {
						t.Errorf("%s = %q, %v", path, got, err)
					}
				}
			})
		}
		all.Wait()
		if n := p.handshakes.Load(); n > int32(atOnce) {
			t.Errorf("%d at once: %d handshakes for 400 requests", atOnce, n)
		}
	}
}

// The kept connections are bounded for each host, and in total.
func TestKeptConnectionsAreBounded(t *testing.T) {
	for hosts, want := range map[int]int{1: kept.MaxIdlePerHost, 3: kept.MaxIdle} {
		checkBounds(t, hosts, want)
	}
}

// checkBounds opens more connections to several hosts than are kept for one, and then checks what is kept.
func checkBounds(t *testing.T, count, want int) {
	t.Helper()
	var hosts []*provider
	release := make(chan struct{})
	var waiting sync.WaitGroup
	for range count {
		hosts = append(hosts, newProvider(t, func(_ int32, c *link) {
			path, err := c.request()
			if err != nil {
				return
			}
			waiting.Done()
			<-release
			_, _ = io.WriteString(c, answer(path))
			c.honest()
		}))
	}
	c := newClient(t, hosts[0])
	var all sync.WaitGroup
	each := kept.MaxIdlePerHost + 4
	waiting.Add(len(hosts) * each)
	for _, p := range hosts {
		for range each {
			all.Go(func() {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
					"https://"+p.Addr().String()+"/", nil)
				if err != nil {
					t.Error(err)
					return
				}
				resp, err := c.RoundTrip(req)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
			})
		}
	}
	waiting.Wait()
	close(release)
	all.Wait()
	if n := kept.Idle(c.Transport, ""); n != want {
		t.Errorf("%d connections are kept, want %d", n, want)
	}
	for _, p := range hosts {
		if n := kept.Idle(c.Transport, p.Addr().String()); n > kept.MaxIdlePerHost {
			t.Errorf("%d connections of a host are kept, want at most %d", n, kept.MaxIdlePerHost)
		}
	}
}

// A connection that is old, or was idle for long by wall clock time, carries no request.
func TestOldConnectionsAreNotUsed(t *testing.T) {
	for _, ahead := range []time.Duration{kept.IdleTime, kept.MaxAge} {
		p := newProvider(t, func(_ int32, c *link) { c.honest() })
		c := newClient(t, p)
		kept.KeepFor(c.Transport, kept.IdleTime)
		c.must(http.MethodPost, "/first")
		c.ahead.Store(int64(ahead))
		c.must(http.MethodPost, "/second")
		if n := p.handshakes.Load(); n != 2 {
			t.Errorf("%v later: %d handshakes", ahead, n)
		}
	}
}

// A connection in use all the time is replaced too.
func TestBusyConnectionGrowsOld(t *testing.T) {
	p := newProvider(t, func(_ int32, c *link) { c.honest() })
	c := newClient(t, p)
	for at := time.Duration(0); at < 2*kept.MaxAge; at += kept.IdleTime / 2 {
		c.ahead.Store(int64(at))
		c.must(http.MethodPost, "/")
	}
	if n := p.handshakes.Load(); n < 2 || n > 3 {
		t.Errorf("%d handshakes in twice the age of a connection", n)
	}
}

// An idle connection closes itself.
func TestIdleConnectionIsClosed(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{})
	p := newProvider(t, func(_ int32, c *link) {
		c.honest()
		close(closed)
	})
	c := newClient(t, p)
	kept.KeepFor(c.Transport, kept.IdleTime/100)
	c.must(http.MethodPost, "/")
	<-closed
	if n := kept.Idle(c.Transport, ""); n != 0 {
		t.Errorf("%d connections are kept", n)
	}
}

// An answer that was not read completely, was ended by either side or was given up keeps no connection.
func TestWhatKeepsNoConnection(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		whole  bool // the answer is read
	}{
		"not read":   {answer("/code"), false},
		"Connection": {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", true},
		"HTTP/1.0":   {"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", true},
		"another": {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: " +
			"Upgrade\r\n\r\n", true},
		"endless header": {
			"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", kept.MaxHeaderBytes) + "\r\n\r\n", true,
		},
		"endless hints":   {strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", kept.MaxHeaderBytes/20), true},
		"no HTTP":         {"SSH-2.0-OpenSSH\r\n\r\n", true},
		"length and more": {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nmore", true},
	} {
		p := newProvider(t, func(_ int32, l *link) {
			if _, err := l.request(); err == nil {
				_, _ = io.WriteString(l, c.answer)
				l.overhear()
			}
		})
		cl := newClient(t, p)
		for n := range int32(2) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, cl.url,
				strings.NewReader("code=one"))
			if err != nil {
				t.Fatal(err)
			}
			if resp, err := cl.RoundTrip(req); err == nil {
				if c.whole {
					_, _ = io.Copy(io.Discard, resp.Body)
				}
				_ = resp.Body.Close()
			}
			if ctx.Err() != nil {
				t.Errorf("%s: it hung", name)
			}
			cancel()
			if p.handshakes.Load() != n+1 || p.begun.Load() != n+1 {
				t.Errorf("%s: %d requests on %d connections", name, p.begun.Load(), p.handshakes.Load())
			}
		}
	}
}

// A caller that gives up ends the request, and the connection.
func TestCallerThatGivesUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := newProvider(t, second(func(c *link) {
		if _, err := c.request(); err == nil {
			cancel()
			c.overhear()
		}
	}))
	c := newClient(t, p)
	c.must(http.MethodPost, "/first")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := c.RoundTrip(req); err == nil {
		_ = resp.Body.Close()
		t.Error("it was answered")
	}
	if p.begun.Load() != 2 || p.handshakes.Load() != 1 {
		t.Errorf("%d requests on %d connections", p.begun.Load(), p.handshakes.Load())
	}
	c.must(http.MethodPost, "/next")
}
