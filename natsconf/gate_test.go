package natsconf_test

import (
	"io"
	"net"
	"sync"
	"testing"
)

// gate is in front of a NATS server and carries the data of clients and server, as far as allowed.
type gate struct {
	net.Listener

	to string
	// begin is called for each connection. The function that it returns is called before each chunk, decides
	// whether it is forwarded, and may block.
	begin func() func(toServer bool) bool
	conns sync.WaitGroup

	mu  sync.Mutex
	all []net.Conn
}

func newGate(t *testing.T, to string, begin func() func(toServer bool) bool) *gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{Listener: l, to: to, begin: begin}
	g.conns.Go(g.accept)
	t.Cleanup(func() {
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

func (g *gate) accept() {
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
