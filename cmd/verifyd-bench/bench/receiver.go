package bench

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"verifyd/dispatcher/callback/localca"
)

// receiverPath is where callbacks go.
const receiverPath = "/verified"

var noContent = []byte("HTTP/1.1 204 No Content\r\n\r\n")

// receiver takes callbacks over TLS, on one address or on many, and keeps count of each. It reads as little
// of HTTP as a POST needs and answers with bytes made ahead: a framework's server would be slower than what
// it receives from.
type receiver struct {
	ca    *localca.Authority
	hosts []string      // ip:port of each
	delay time.Duration // before each answer; set before the first callback

	listeners []net.Listener
	wg        sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
	tally  *tally
}

// newReceiver listens. Each host beyond the first is a loopback address of its own, so that it is a host of
// its own to the sender; only Linux has such addresses by itself.
func newReceiver(hosts int) (*receiver, error) {
	ca, err := localca.New()
	if err != nil {
		return nil, err
	}
	r := &receiver{ca: ca, conns: map[net.Conn]struct{}{}, tally: newTally(0)}
	port := "0"
	for i := range hosts {
		// 127.0.0.1, then 127.1.0.1, 127.1.0.2 …: nothing else listens there.
		ip := "127.0.0.1"
		if i > 0 {
			ip = fmt.Sprintf("127.1.%d.%d", i/250, i%250+1)
		}
		if err := r.listen(net.JoinHostPort(ip, port)); err != nil {
			r.close()
			if i > 0 {
				return nil, fmt.Errorf("listen as receiver %d of %d: %w; this row needs the whole of 127.0.0.0/8, which Linux has by itself",
					i+1, hosts, err)
			}
			return nil, fmt.Errorf("listen as receiver: %w", err)
		}
		if _, port, err = net.SplitHostPort(r.hosts[0]); err != nil {
			r.close()
			return nil, fmt.Errorf("listen as receiver: %w", err)
		}
	}
	return r, nil
}

func (r *receiver) listen(address string) error {
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
	r.hosts = append(r.hosts, l.Addr().String())
	config := &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	r.wg.Go(func() { r.accept(l, config) })
	return nil
}

// url returns the address of callbacks to a host, counted from 0; the hosts come round again.
func (r *receiver) url(i int) string { return "https://" + r.hosts[i%len(r.hosts)] + receiverPath }

// count begins a new tally, which is complete with the given number of callbacks.
func (r *receiver) count(want int) *tally {
	t := newTally(want)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tally = t
	return t
}

// close ends every connection and waits for all that was started.
func (r *receiver) close() {
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

func (r *receiver) accept(l net.Listener, config *tls.Config) {
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

func (r *receiver) enter(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		_ = c.Close()
		return false
	}
	r.conns[c] = struct{}{}
	return true
}

func (r *receiver) leave(c net.Conn) {
	_ = c.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, c)
}

// serve answers the POSTs of one connection until it ends. A request that is not a POST with a webhook-id
// ends it unanswered.
func (r *receiver) serve(c *tls.Conn) {
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
		if r.delay > 0 {
			time.Sleep(r.delay)
		}
		t.underWay.Add(-1) // with the answer the sender may begin the next one
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

// tally is the count of one measurement.
type tally struct {
	done chan struct{} // closed when as many have come as are wanted

	underWay, most atomic.Int64 // callbacks that are not answered yet, and how many these were at the most

	mu         sync.Mutex
	want       int
	at         map[string]time.Time // of each callback's first arrival
	began, end time.Time            // the first and the last arrival
	duplicates int64
	waiting    map[string]chan time.Time
}

func newTally(want int) *tally {
	return &tally{
		done: make(chan struct{}), want: want, at: make(map[string]time.Time, want),
		waiting: map[string]chan time.Time{},
	}
}

// begin notes a callback that has been read.
func (t *tally) begin() {
	now := t.underWay.Add(1)
	for most := t.most.Load(); now > most && !t.most.CompareAndSwap(most, now); most = t.most.Load() {
		continue
	}
}

// maxAtOnce returns how many callbacks were under way at once, at the most.
func (t *tally) maxAtOnce() int64 { return t.most.Load() }

func (t *tally) receive(id string, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.at[id]; known {
		t.duplicates++
		return
	}
	t.at[id] = at
	t.end = at
	if len(t.at) == 1 {
		t.began = at
	}
	if len(t.at) == t.want {
		close(t.done)
	}
	if w, ok := t.waiting[id]; ok {
		w <- at
		delete(t.waiting, id)
	}
}

// wait returns when a callback arrived, once it has.
func (t *tally) wait(ctx context.Context, id string) (time.Time, error) {
	t.mu.Lock()
	if at, ok := t.at[id]; ok {
		t.mu.Unlock()
		return at, nil
	}
	w := make(chan time.Time, 1)
	t.waiting[id] = w
	t.mu.Unlock()
	late := time.NewTimer(answerWithin)
	defer late.Stop()
	select {
	case at := <-w:
		return at, nil
	case <-late.C:
		return time.Time{}, fmt.Errorf("the callback did not arrive within %s", answerWithin)
	case <-ctx.Done():
		return time.Time{}, ctx.Err()
	}
}

// seen returns how many callbacks have arrived, how many arrived again, and the time from the first to the
// last.
func (t *tally) seen() (n int, duplicates int64, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.at), t.duplicates, t.end.Sub(t.began)
}

// arrival returns when a callback arrived.
func (t *tally) arrival(id string) (time.Time, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, ok := t.at[id]
	return at, ok
}
