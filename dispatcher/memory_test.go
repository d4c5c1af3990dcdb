package dispatcher_test

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/natstest/virtual"
	"verifyd/natsconf/simtest"
)

// virtually runs a test as virtual.Test does, with receivers in memory: a bubble of virtual time cannot
// wait for sockets. On three servers it has real ones.
func virtually(t *testing.T, test func(t *testing.T, h *fixture)) {
	t.Helper()
	virtual.Test(t, func(t *testing.T, conn *natsconf.Conn) {
		h := newFixture(t)
		if !natstest.OnCluster() {
			h.memory = newMemory()
		}
		h.open(t, conn)
		test(t, h)
	})
}

// memory is a network in memory.
type memory struct {
	accepts chan struct{} // if there is one, no connection is made before it is closed

	mu        sync.Mutex
	listeners map[netip.AddrPort]*memoryListener
	ports     uint16 // given so far
}

func newMemory() *memory { return &memory{listeners: map[netip.AddrPort]*memoryListener{}} }

// listen listens on an address, as net.Listen does: the port 0 stands for any free one.
func (m *memory) listen(address string) (net.Listener, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if at.Port() == 0 {
		m.ports++
		at = netip.AddrPortFrom(at.Addr(), 40000+m.ports)
	}
	if m.listeners[at] != nil {
		return nil, syscall.EADDRINUSE
	}
	l := &memoryListener{of: m, at: at, came: make(chan net.Conn), closed: make(chan struct{})}
	m.listeners[at] = l
	return l, nil
}

// dial is a callback.DialFunc.
func (m *memory) dial(ctx context.Context, _, address string) (net.Conn, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	l := m.listeners[at]
	m.ports++
	from := net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 40000 + int(m.ports)}
	m.mu.Unlock()
	if l == nil {
		return nil, syscall.ECONNREFUSED
	}
	if m.accepts != nil {
		select {
		case <-m.accepts:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	near, far := simtest.Pipe(&from, l.Addr())
	select {
	case l.came <- far:
		return near, nil
	case <-l.closed:
		return nil, syscall.ECONNREFUSED
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// memoryListener is a listener in memory.
type memoryListener struct {
	of     *memory
	at     netip.AddrPort
	came   chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *memoryListener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.at) }

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.came:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memoryListener) Close() error {
	l.once.Do(func() {
		l.of.mu.Lock()
		defer l.of.mu.Unlock()
		delete(l.of.listeners, l.at)
		close(l.closed)
	})
	return nil
}
