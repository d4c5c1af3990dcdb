package natstest

import (
	"io"
	"net"
	"sync"
	"testing"
)

// Gate is in front of a server, of NATS or another, and carries the data of clients and server, as far as
// allowed.
type Gate struct {
	net.Listener

	to string
	// begin is called for each connection. The function that it returns is called before each chunk, decides
	// whether it is forwarded, and may block.
	begin func() func(toServer bool) bool
	conns sync.WaitGroup

	mu  sync.Mutex
	all []net.Conn
}

// NewGate runs a gate in front of the server at to until the test ends.
func NewGate(tb testing.TB, to string, begin func() func(toServer bool) bool) *Gate {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	g := &Gate{Listener: l, to: to, begin: begin}
	g.conns.Go(g.accept)
	tb.Cleanup(func() {
		_ = l.Close()
		g.mu.Lock()
		for _, c := range g.all {
			_ = c.Close()
		}
		g.mu.Unlock()
		g.conns.Wait()
	})
	return g
}

func (g *Gate) accept() {
	for {
		client, err := g.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", g.to)
		if err != nil {
			_ = client.Close()
			continue
		}
		g.mu.Lock()
		g.all = append(g.all, client, server)
		g.mu.Unlock()
		pass := g.begin()
		g.conns.Go(func() { carry(server, client, func() bool { return pass(true) }) })
		g.conns.Go(func() { carry(client, server, func() bool { return pass(false) }) })
	}
}

// carry copies until one side ends.
func carry(to io.Writer, from io.Reader, pass func() bool) {
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		if !pass() {
			continue
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}
