// Package virtual runs tests in virtual time, in bubbles of testing/synctest, on the broker for simulations
// (simtest). It is for tests that wait for the product's own pauses and time-outs: they wait for seconds, and
// take none. What only a real server, a socket or a process does needs natstest.
package virtual

import (
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	_ "unsafe" // for the client's timers

	"github.com/rs/zerolog"

	"verifyd/natsconf"
	"verifyd/natsconf/natstest"
	"verifyd/natsconf/simtest"
)

// Test runs a test in virtual time, with a connection to a simulated broker with the topology. Where the
// tests run on three servers it runs on them, in real time.
func Test(t *testing.T, test func(t *testing.T, conn *natsconf.Conn)) {
	t.Helper()
	if natstest.OnCluster() {
		test(t, natstest.Start(t))
		return
	}
	Bubble(t, func(t *testing.T) {
		conn := NewBroker(t).Connect(t, nil)
		natstest.Ensure(t, conn)
		test(t, conn)
	})
}

// Bubble runs a test in virtual time, wherever the others run. It may have simulated brokers.
func Bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	for len(spareTimers) < cap(spareTimers)/2 {
		spareTimers <- stoppedTimer()
	}
	synctest.Test(t, test)
}

// Broker is a simulated broker in the bubble of a test.
type Broker struct{ broker *simtest.Broker }

// NewBroker returns a broker without streams. A request that it does not know fails the test.
func NewBroker(tb testing.TB) Broker {
	tb.Helper()
	return Broker{simtest.New(simtest.Options{Unknown: func(what string) {
		tb.Errorf("the simulated broker does not know: %s", what)
	}})}
}

// Pass decides whether data of a connection is forwarded, as of a natstest.Gate; it may block.
type Pass func(toServer bool, data []byte) bool

// Connect returns a connection to the broker. begin is called for each connection that it makes; nil: all is
// forwarded.
func (b Broker) Connect(tb testing.TB, begin func() Pass) *natsconf.Conn {
	tb.Helper()
	conn, err := natsconf.Connect(tb.Context(), natsconf.ConnectOptions{
		Embedded: gated{b.broker.Endpoint(tb.Name()), begin}, Name: tb.Name(), Log: zerolog.Nop(),
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(conn.Close)
	return conn
}

// gated is an endpoint behind a gate.
type gated struct {
	*simtest.Endpoint

	begin func() Pass
}

// InProcessConn opens a connection through the gate.
func (g gated) InProcessConn() (net.Conn, error) {
	c, err := g.Endpoint.InProcessConn()
	if err != nil || g.begin == nil {
		return c, err
	}
	return &gatedConn{c, g.begin()}, nil
}

// gatedConn is the client's end of a connection.
type gatedConn struct {
	net.Conn

	pass Pass
}

func (c *gatedConn) Write(b []byte) (int, error) {
	if !c.pass(true, b) {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *gatedConn) Read(b []byte) (int, error) {
	for {
		if n, err := c.Conn.Read(b); err != nil || c.pass(false, b[:n]) {
			return n, err
		}
	}
}

// clientTimers is the pool in which the NATS client keeps the timers of its flushes. All connections of a
// process share it, and a timer that was made in one bubble must not be used in another: so those that the
// pool makes are made outside of all. In a bubble such a timer never fires, and a flush ends with its answer
// or its connection.
//
//go:linkname clientTimers github.com/nats-io/nats%2ego.globalTimerPool
var clientTimers sync.Pool

// spareTimers are far more than tests flush while a bubble lasts.
var spareTimers = lendTimers()

func lendTimers() chan *time.Timer {
	spare := make(chan *time.Timer, 4096)
	clientTimers.New = func() any {
		select {
		case t := <-spare:
			return t
		default:
			return nil // there is no bubble yet
		}
	}
	return spare
}

func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}
