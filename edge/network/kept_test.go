package network_test

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"verifyd/edge/network"
)

// Sign-ins share connections: 200 of them, sequential or eight at a time, cost at most a twentieth of a
// handshake each.
func TestSignInsShareConnections(t *testing.T) {
	for _, atOnce := range []int{1, 8} {
		s := newStandIn(t)
		n := s.network(t)
		var all sync.WaitGroup
		for range atOnce {
			all.Go(func() {
				for range 200 / atOnce {
					if _, err := n.Redeem(t.Context(), s.attempt, s.good()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if got := s.handshakes.Load(); got == 0 || got > 10 || s.codePosts.Load() != 200 {
			t.Errorf("%d at once: %d handshakes for %d codes", atOnce, got, s.codePosts.Load())
		}
	}
}

// A provider that closes connections between sign-ins gets the next one on another connection. If the close
// is still under way the sign-in ends in an error, and the code is not sent again.
func TestProviderClosesBetweenSignIns(t *testing.T) {
	s := newStandIn(t)
	n := s.network(t)
	for i := range int32(20) {
		if _, err := n.Redeem(t.Context(), s.attempt, s.good()); err != nil {
			wantFailure(t, err, network.StageToken, network.ClassReset)
		}
		if s.codePosts.Load() > i+1 {
			t.Fatalf("%d codes were posted in %d sign-ins", s.codePosts.Load(), i+1)
		}
		s.CloseClientConnections()
	}
}

// A provider that ends a kept connection when the code arrives has got it once, and the next sign-in works.
func TestCodeOnAKeptConnectionComesOnce(t *testing.T) {
	for name, end := range map[string]func(*net.TCPConn){
		"close": func(c *net.TCPConn) { _ = c.Close() },
		"half":  func(c *net.TCPConn) { _ = c.CloseWrite() },
		"reset": func(c *net.TCPConn) {
			_ = c.SetLinger(0)
			_ = c.Close()
		},
	} {
		s := newStandIn(t)
		var ends atomic.Bool // a kept connection's handler runs on while this changes
		honest := s.token
		s.token = func(w http.ResponseWriter, q *http.Request) {
			if !ends.Load() {
				honest(w, q)
				return
			}
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			end(conn.(*tls.Conn).NetConn().(*net.TCPConn))
			_, _ = io.Copy(io.Discard, conn) // until the other side closes
			_ = conn.Close()
		}
		n := s.network(t)
		if _, err := n.Redeem(t.Context(), s.attempt, s.good()); err != nil {
			t.Fatal(err)
		}
		// a machine that stalls for seconds costs one more
		shakes := s.handshakes.Load()
		ends.Store(true)
		_, err := n.Redeem(t.Context(), s.attempt, s.good())
		wantFailure(t, err, network.StageToken, network.ClassReset)
		if s.codePosts.Load() != 2 || s.handshakes.Load() > shakes+1 {
			t.Errorf("%s: %d codes were posted in two sign-ins, the second on %d new connections", name,
				s.codePosts.Load(), s.handshakes.Load()-shakes)
		}
		ends.Store(false)
		if _, err := n.Redeem(t.Context(), s.attempt, s.good()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
