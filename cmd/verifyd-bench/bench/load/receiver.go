package load

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"verifyd/dispatcher/callback/localca"
)

// ReceiverPath is the path of callbacks.
const ReceiverPath = "/verified"

var noContent = []byte("HTTP/1.1 204 No Content\r\n\r\n")

// Receiver accepts callbacks over TLS, on one address or on many, and counts each of them. It parses only as
// much HTTP as a POST needs and answers with prepared bytes: net/http's server would be slower than the
// sender.
type Receiver struct {
	Hosts []string      // ip:port of each
	Delay time.Duration // before each answer; set before the first callback

	ca        *localca.Authority
	listeners []net.Listener
	wg        sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
	tally  *Tally
}

// NewReceiver listens, with certificates of an authority. Each host beyond the first is a loopback address of
// its own, so that it is a host of its own to the sender; only Linux has such addresses without
// configuration.
func NewReceiver(ca *localca.Authority, hosts int) (*Receiver, error) {
	r := &Receiver{ca: ca, conns: map[net.Conn]struct{}{}, tally: newTally(0)}
	port := "0"
	for i := range hosts {
		// 127.0.0.1, then 127.1.0.1, 127.1.0.2 …: nothing else listens there.
		ip := "127.0.0.1"
		if i > 0 {
			ip = fmt.Sprintf("127.1.%d.%d", i/250, i%250+1)
		}
		if err := r.listen(net.JoinHostPort(ip, port)); err != nil {
			r.Close()
			if i > 0 {
				return nil, fmt.Errorf("listen as receiver %d of %d: %w; this row needs the whole of "+
					"127.0.0.0/8, which Linux has by itself", i+1, hosts, err)
			}
			return nil, fmt.Errorf("listen as receiver: %w", err)
		}
		_, port, _ = net.SplitHostPort(r.Hosts[0]) // a listener's address
	}
	return r, nil
}

func (r *Receiver) listen(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	host, _, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		_ = l.Close()
		return err
	}
	certificate, err := r.ca.Issue(localca.Certificate{Hosts: []string{host}})
	if err != nil {
		_ = l.Close()
		return err
	}
	r.listeners = append(r.listeners, l)
	r.Hosts = append(r.Hosts, l.Addr().String())
	config := &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	r.wg.Go(func() { r.accept(l, config) })
	return nil
}

// URL returns the address of callbacks to a host, counted from 0; the hosts repeat.
func (r *Receiver) URL(i int) string { return "https://" + r.Hosts[i%len(r.Hosts)] + ReceiverPath }

// Count begins a new tally, which is complete with the given number of callbacks.
func (r *Receiver) Count(want int) *Tally {
	t := newTally(want)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tally = t
	return t
}

// Close ends every connection and waits for all that was started.
func (r *Receiver) Close() {
	for _, l := range r.listeners {
		_ = l.Close()
	}
	r.mu.Lock()
	r.closed = true
	for c := range r.conns {
		_ = c.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
}

func (r *Receiver) accept(l net.Listener, config *tls.Config) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		if !r.enter(c) {
			return
		}
		r.wg.Go(func() {
			defer r.leave(c)
			r.serve(tls.Server(c, config))
		})
	}
}

func (r *Receiver) enter(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		_ = c.Close()
		return false
	}
	r.conns[c] = struct{}{}
	return true
}

func (r *Receiver) leave(c net.Conn) {
	_ = c.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, c)
}

// serve answers the POSTs of one connection until it ends. A request that is not a POST with a webhook-id
// ends it unanswered.
func (r *Receiver) serve(c *tls.Conn) {
	in := bufio.NewReaderSize(c, readBytes)
	for {
		id, err := readPost(in)
		if err != nil {
			return
		}
		at := time.Now()
		r.mu.Lock()
		t := r.tally
		r.mu.Unlock()
		t.begin()
		if r.Delay > 0 {
			time.Sleep(r.Delay)
		}
		t.underWay.Add(-1) // after the answer the sender may begin the next one
		if _, err := c.Write(noContent); err != nil {
			return
		}
		t.receive(id, at)
	}
}

// readPost reads one request and returns its webhook-id.
func readPost(in *bufio.Reader) (id string, err error) {
	line, err := readLine(in)
	if err != nil {
		return "", err
	}
	if !strings.HasPrefix(string(line), "POST ") {
		return "", fmt.Errorf("%q is not a POST", line)
	}
	length := -1
	for {
		line, err := readLine(in)
		if err != nil {
			return "", err
		}
		if len(line) == 0 {
			break
		}
		if v, ok := field(line, "content-length"); ok {
			if length, err = strconv.Atoi(string(v)); err != nil {
				return "", fmt.Errorf("content-length %q", v)
			}
		} else if v, ok := field(line, "webhook-id"); ok {
			id = string(v)
		}
	}
	if id == "" || length < 0 {
		return "", errors.New("a request without webhook-id or length")
	}
	if _, err := in.Discard(length); err != nil {
		return "", fmt.Errorf("read the body: %w", err)
	}
	return id, nil
}
