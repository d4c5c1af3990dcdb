package callback_test

import (
	"bufio"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"verifyd/dispatcher/callback"
	"verifyd/dispatcher/callback/localca"
	"verifyd/sessions/facts"
	"verifyd/sessions/failure"
)

// holding is a receiver's socket that can be told to send only a part of what is written.
type holding struct {
	net.Conn

	mu   sync.Mutex
	on   bool
	left int
}

func (h *holding) hold(after int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.on, h.left = true, after
}

func (h *holding) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.on {
		return h.Conn.Write(b)
	}
	n := min(h.left, len(b))
	h.left -= n
	if _, err := h.Conn.Write(b[:n]); err != nil {
		return 0, err
	}
	return len(b), nil
}

// The beginning of an answer that nobody asked for is enough to never use a connection again: its rest would
// arrive after the next request, and be read as the answer to that. It may arrive in the same segment as the
// answer before, or later.
func TestBeginningOfAnUnaskedAnswerEndsTheConnection(t *testing.T) {
	for _, bytes := range []int{1, 4, 5, 6, 20} {
		for _, together := range []bool{true, false} {
			cert := mustIssue(t, localca.Certificate{Hosts: []string{"127.0.0.1"}})
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			later, ended := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(ended)
				answerAndBegin(l, &tls.Config{Certificates: []tls.Certificate{cert}}, bytes, together, later)
			}()
			c := newClient(time.Minute)
			u := mustURL(t, "https://"+l.Addr().String()+"/")
			cn := mustDial(t, c, u)
			first := cn.Send(t.Context(), mustPrepare(t, c, u))
			if first.Verdict != delivered || !first.Reusable {
				t.Fatalf("%+v", first)
			}
			close(later)
			if !together {
				if err := callback.WaitReadable(cn); err != nil {
					t.Fatal(err)
				}
			}
			second := cn.Send(t.Context(), mustPrepare(t, c, u))
			if second.Verdict != facts.VerdictReleased || second.Class != failure.Protocol ||
				!cn.Unsolicited() {
				t.Errorf("%d bytes, in the same segment %v: %+v", bytes, together, second)
			}
			_ = cn.Close()
			_ = l.Close()
			<-ended
		}
	}
}

// answerAndBegin answers one request and sends some bytes of another answer.
func answerAndBegin(l net.Listener, config *tls.Config, bytes int, together bool, later <-chan struct{}) {
	conn, err := l.Accept()
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	out := &gathering{Conn: conn}
	hold := &holding{Conn: out}
	session := tls.Server(hold, config)
	in := bufio.NewReader(session)
	if _, err := http.ReadRequest(in); err != nil {
		return
	}
	out.gather(together)
	_, _ = session.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
	if !together {
		<-later
	}
	hold.hold(bytes)
	_, _ = session.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate"))
	out.flush()
	_, _ = http.ReadRequest(in) // until the other side closes
}

// gathering sends several writes as one.
type gathering struct {
	net.Conn

	on  bool
	all []byte
}

func (g *gathering) gather(on bool) { g.on = on }

func (g *gathering) Write(b []byte) (int, error) {
	if !g.on {
		return g.Conn.Write(b)
	}
	g.all = append(g.all, b...)
	return len(b), nil
}

func (g *gathering) flush() { _, _ = g.Conn.Write(g.all) }
