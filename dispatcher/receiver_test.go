package dispatcher_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// side is the receiver's side of one connection.
type side struct {
	*tls.Conn
	r    *rawReceiver
	wire net.Conn
}

func (s *side) say(text string) { _, _ = io.WriteString(s, text) }

// forever sends it in pieces of a record's size: one by one, thousands of records would take a busy machine
// longer than an attempt may last.
func (s *side) forever(text string) {
	text = strings.Repeat(text, 1+16<<10/len(text))
	for {
		if _, err := io.WriteString(s, text); err != nil {
			return
		}
	}
}

// drip sends one byte a second until the connection or the test ends.
func (s *side) drip(text string) {
	pace := time.NewTicker(time.Second)
	defer pace.Stop()
	for i := 0; ; i++ {
		if _, err := io.WriteString(s, text[i%len(text):i%len(text)+1]); err != nil {
			return
		}
		select {
		case <-pace.C:
		case <-s.r.settled:
			return
		}
	}
}

func reset(c net.Conn) {
	if tcp, ok := c.(oneByOne); ok {
		c = tcp.Conn
	}
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
}

// oneByOne keeps TLS from reading ahead, so that what comes after the handshake can be read from the wire.
type oneByOne struct{ net.Conn }

func (o oneByOne) Read(b []byte) (int, error) { return o.Conn.Read(b[:min(1, len(b))]) }

// rawReceiver is a hostile receiver: it counts the requests that have begun, even with one byte.
type rawReceiver struct {
	b        behaviour
	listener net.Listener
	tls      *tls.Config
	settled  <-chan struct{} // every delivery of the test has ended

	conns, begun, whole atomic.Int64

	mu   sync.Mutex
	open []net.Conn
	wg   sync.WaitGroup
}

func startRaw(t *testing.T, b behaviour, address string, conf *tls.Config,
	settled <-chan struct{}) *rawReceiver {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	r := &rawReceiver{b: b, listener: l, tls: conf, settled: settled}
	if b.nothing {
		_ = l.Close()
		return r
	}
	r.wg.Go(r.accept)
	t.Cleanup(r.stop)
	return r
}

func (r *rawReceiver) url() string { return "https://" + r.listener.Addr().String() + "/hook" }

func (r *rawReceiver) accept() {
	for {
		conn, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.conns.Add(1)
		r.mu.Lock()
		r.open = append(r.open, conn)
		r.mu.Unlock()
		r.wg.Go(func() {
			defer conn.Close()
			if r.b.raw != nil {
				r.b.raw(conn)
				return
			}
			r.serve(conn)
		})
	}
}

func (r *rawReceiver) serve(conn net.Conn) {
	wire := oneByOne{conn}
	s := &side{Conn: tls.Server(wire, r.tls), r: r, wire: wire}
	if s.Handshake() != nil {
		return
	}
	if r.b.opened != nil {
		r.b.opened(s)
	}
	for in := bufio.NewReader(s); ; {
		if _, err := in.Peek(1); err != nil {
			return
		}
		r.begun.Add(1)
		request, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, request.Body); err != nil || request.Method != http.MethodPost {
			return
		}
		r.whole.Add(1)
		r.b.answer(s)
	}
}

func (r *rawReceiver) stop() {
	_ = r.listener.Close()
	r.mu.Lock()
	for _, c := range r.open {
		_ = c.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
}
