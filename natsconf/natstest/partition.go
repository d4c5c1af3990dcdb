package natstest

import (
	"net"
	"strconv"
	"sync"
	"testing"
)

// lines are the routes between the servers of a Trio, each through a gate. What is said on one that is cut is
// held, as on a network that loses packets: no connection ends by that.
type lines struct {
	mu     sync.Mutex
	cut    string        // the server that is cut off; empty: none is
	healed chan struct{} // closed when it is not any more
}

// LayLines starts the servers again, with routes that can be cut (CutOff).
func (tr *Trio) LayLines(tb testing.TB) {
	tb.Helper()
	tr.lines = &lines{}
	for _, n := range tr.nodes {
		n.kill()
		n.routes = nil
		for _, other := range tr.nodes {
			if other != n {
				n.routes = append(n.routes, tr.lines.between(tb, n.name, other.name, other.listen))
			}
		}
		// who hears of its address from the third server must not go there past the gates
		n.advertise = "127.0.0.1:1"
	}
	tr.startAll(tb)
}

// between returns the port of a gate through which a server reaches another one's port.
func (l *lines) between(tb testing.TB, from, to string, port int) int {
	tb.Helper()
	g := NewGate(tb, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), func() func(bool) bool {
		return func(bool) bool {
			<-l.open(from, to)
			return true
		}
	})
	tb.Cleanup(l.heal)                  // before the gate waits for what is held in it
	return g.Addr().(*net.TCPAddr).Port //nolint:errcheck,forcetypeassert // it listens on TCP
}

// open returns a channel that is closed while two servers reach each other.
func (l *lines) open(one, other string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one == l.cut || other == l.cut {
		return l.healed
	}
	return always
}

// always is closed.
var always = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func (l *lines) heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut != "" {
		l.cut = ""
		close(l.healed)
	}
}

// CutOff cuts a server off from the others, but not from its clients, until Heal or the test's end. No other
// one may be cut off.
func (tr *Trio) CutOff(name string) {
	tr.lines.mu.Lock()
	defer tr.lines.mu.Unlock()
	tr.lines.cut, tr.lines.healed = name, make(chan struct{})
}

// Heal ends a CutOff.
func (tr *Trio) Heal() { tr.lines.heal() }
