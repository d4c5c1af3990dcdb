package simulation_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"verifyd/natsconf/simtest"
)

// received is what a receiver got and sent for one session.
type received struct {
	posts    []time.Time
	statuses []int // of complete status lines that it sent
}

// receivedOf returns what was received for a session. The lock is held.
func (w *world) receivedOf(name string) *received {
	if w.received[name] == nil {
		w.received[name] = &received{}
	}
	return w.received[name]
}

// receivers is the number of receiving hosts.
const receivers = 3

func receiverAt(n int) string { return fmt.Sprintf("127.0.1.%d:8443", 1+n) }

// dial connects a worker to a receiver or an identity network.
func (w *world) dial(ctx context.Context, worker, address string) (*simtest.Conn, error) {
	r := w.draw("dial of %s to %s", worker, address)
	w.mu.Lock()
	refused := w.unreachable == address && !w.reachableOnce || !w.calm && w.happens(r, "dial refused")
	silent := !w.calm && !refused && w.happens(r, "dial unanswered")
	garbage := !w.calm && !silent && w.happens(r, "no TLS")
	slow := !w.calm && !silent && w.happens(r, "dial slow")
	w.mu.Unlock()
	if slow {
		select {
		case <-time.After(time.Duration(r.IntN(2000)) * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	switch {
	case refused:
		return nil, errRefused
	case silent:
		<-ctx.Done()
		return nil, ctx.Err()
	}
	to := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address))
	near, far := simtest.Pipe(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 50000}, to)
	if garbage {
		_, _ = io.WriteString(far, "HTTP/1.1 400 Bad Request\r\n\r\n")
		_ = far.Close()
		return near, nil
	}
	if n := networkAt(address); n != nil {
		w.serving.Go(func() { n.receive(w, far) })
	} else {
		w.serving.Go(func() { w.receive(far) })
	}
	return near, nil
}

// receive serves a receiver's side of one connection.
func (w *world) receive(wire *simtest.Conn) {
	defer wire.Close()
	conn := tls.Server(wire, receiverTLS)
	_ = wire.SetReadDeadline(time.Now().Add(time.Minute))
	if conn.Handshake() != nil {
		return
	}
	exchange(wire, conn, func(q *http.Request, _ url.Values) bool {
		return w.answer(strings.TrimPrefix(q.URL.Path, "/"), conn, wire)
	})
}

// exchange answers each request on a connection; form is the request's body, if that is a form.
func exchange(wire *simtest.Conn, conn io.Reader, answer func(q *http.Request, form url.Values) (goOn bool)) {
	for in := bufio.NewReader(conn); ; {
		_ = wire.SetReadDeadline(time.Now().Add(time.Minute))
		q, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body, err := io.ReadAll(q.Body)
		if err != nil {
			return
		}
		form, _ := url.ParseQuery(string(body))
		if !answer(q, form) {
			return
		}
	}
}

// behaviours are the ways in which a receiver or an identity network may treat a request, by the names of
// the faults.
var behaviours = map[string]func(p *part) (goOn bool){
	"answer 500": func(p *part) bool { return p.status(500, "Content-Length: 0\r\n\r\n") },
	"answer 404": func(p *part) bool { return p.status(404, "Content-Length: 2\r\n\r\nno") },
	"answer 429": func(p *part) bool { return p.status(429, "Retry-After: 3\r\nContent-Length: 0\r\n\r\n") },
	"answer that hangs": func(p *part) bool {
		time.Sleep(30 * time.Second) // in virtual time
		return false
	},
	"answer reset": func(p *part) bool {
		p.wire.Reset()
		return false
	},
	"answer reset after a byte": func(p *part) bool {
		_, _ = io.WriteString(p.conn, "H")
		time.Sleep(time.Duration(p.r.IntN(3)) * time.Second) // in virtual time
		p.wire.Reset()
		return false
	},
	"half an answer": func(p *part) bool {
		_, _ = io.WriteString(p.conn, "HTTP/1.1 20")
		time.Sleep(time.Duration(p.r.IntN(30)) * time.Second) // in virtual time
		return false
	},
	"half a body": func(p *part) bool {
		p.status(200, "Content-Length: 100\r\n\r\nha")
		return false
	},
	"answer is slow": func(p *part) bool {
		time.Sleep(time.Duration(p.r.IntN(12000)) * time.Millisecond) // in virtual time
		return p.status(200, p.right)
	},
	"answer with more": func(p *part) bool {
		_, _ = io.WriteString(p.conn, "HTTP/1.1 103 Early Hints\r\n\r\n")
		return p.status(200, p.right+"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	},
	"answer and close": func(p *part) bool {
		p.status(204, "Connection: close\r\n\r\n")
		return false
	},
}

// behaviourNames are their names in a fixed order.
var behaviourNames = sortedKeys(behaviours)

// part is the answering side of one exchange.
type part struct {
	w     *world
	conn  io.Writer
	wire  *simtest.Conn
	r     *rand.Rand
	right string                      // the right answer, without its status line
	said  func(code int, rest string) // called with an answer before it is sent
}

// status sends a status line and the rest of an answer.
func (p *part) status(code int, rest string) bool {
	p.said(code, rest)
	_, err := io.WriteString(p.conn, "HTTP/1.1 "+strconv.Itoa(code)+" X\r\n"+rest)
	return err == nil
}

func (w *world) answer(name string, conn *tls.Conn, wire *simtest.Conn) (goOn bool) {
	p := &part{w: w, conn: conn, wire: wire, r: w.draw("answer to %s", name),
		right: "Content-Length: 0\r\n\r\n", said: func(code int, _ string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			t := w.receivedOf(name)
			t.statuses = append(t.statuses, code)
			w.noteLocked("receiver answers %s with %d", name, code)
		}}
	w.mu.Lock()
	saw := w.receivedOf(name)
	saw.posts = append(saw.posts, time.Now())
	w.reachableOnce = w.reachableOnce && wire.LocalAddr().String() != w.unreachable
	behaviour := ""
	for _, b := range behaviourNames {
		if !w.calm && w.happens(p.r, b) {
			behaviour = b
			break
		}
	}
	w.noteLocked("receiver gets %s, %s", name, behaviour)
	w.mu.Unlock()
	if do, ok := behaviours[behaviour]; ok {
		return do(p)
	}
	return p.status(200, p.right)
}
