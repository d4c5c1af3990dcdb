package soak

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// front is the address that users and integrators know. It passes each connection to an edge that accepts it.
type front struct {
	listener net.Listener
	to       []string
	next     atomic.Uint64
}

func newFront() (*front, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	return &front{listener: l}, err
}

// serve carries connections until the listener is closed.
func (f *front) serve(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		c, err := f.listener.Accept()
		if err != nil {
			return
		}
		wg.Go(func() {
			defer func() { _ = c.Close() }()
			stop := context.AfterFunc(ctx, func() { _ = c.Close() })
			defer stop()
			f.carry(c)
		})
	}
}

func (f *front) carry(c net.Conn) {
	first := f.next.Add(1)
	for i := range uint64(len(f.to)) {
		e, err := net.DialTimeout("tcp", f.to[(first+i)%uint64(len(f.to))], time.Second)
		if err != nil {
			continue
		}
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = io.Copy(e, c); _ = e.Close() })
		_, _ = io.Copy(c, e)
		_, _ = c.Close(), e.Close()
		wg.Wait()
		return
	}
}

// hosts is how many receivers there are, each at an address of its own.
const hosts = 4

// receivers count the callbacks that arrive.
type receivers struct {
	servers []*receiver

	mu    sync.Mutex
	posts map[string]int // by webhook-id
}

// receiver comes and goes.
type receiver struct {
	address string
	config  *tls.Config
	handler http.Handler

	mu     sync.Mutex
	server *http.Server // nil while it is away
}

func newReceivers(config *tls.Config) (*receivers, error) {
	r := &receivers{posts: map[string]int{}}
	addresses, err := freeAddresses(hosts)
	if err != nil {
		return nil, err
	}
	for _, address := range addresses {
		v := &receiver{address: address, config: config, handler: r}
		if err := v.come(); err != nil {
			return nil, err
		}
		r.servers = append(r.servers, v)
	}
	return r, nil
}

// ServeHTTP counts a callback.
func (r *receivers) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	r.posts[q.Header.Get("webhook-id")]++
	r.mu.Unlock()
	_, _ = io.Copy(io.Discard, q.Body)
	w.WriteHeader(http.StatusNoContent)
}

// of returns how often a callback has arrived.
func (r *receivers) of(id string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.posts[id]
}

// url returns the callback URL of a session, counted from 0.
func (r *receivers) url(i int) string { return "https://" + r.servers[i%hosts].address + "/verified" }

func (r *receivers) close() {
	for _, v := range r.servers {
		v.leave()
	}
}

// come begins to listen. A repeat is harmless.
func (v *receiver) come() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.server != nil {
		return nil
	}
	l, err := tls.Listen("tcp", v.address, v.config)
	if err != nil {
		return err
	}
	v.server = &http.Server{Handler: v.handler, ReadHeaderTimeout: time.Minute}
	go func(s *http.Server) { _ = s.Serve(l) }(v.server)
	return nil
}

// leave ends the receiver and its connections, in the middle of what they do.
func (v *receiver) leave() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.server != nil {
		_ = v.server.Close()
		v.server = nil
	}
}

func freeAddresses(n int) (all []string, err error) {
	var listeners []net.Listener
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		listeners, all = append(listeners, l), append(all, l.Addr().String())
	}
	for _, l := range listeners {
		err = errors.Join(err, l.Close())
	}
	return all, err
}
