package web

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// ServerConfig defines where and within which limits a server answers. Fields without a default are required.
type ServerConfig struct {
	Name   string // its name in logs, as in "public"
	Listen string // host:port; port 0 takes a free one, and keeps it when served again
	// Listener, if set, is already open: the first Serve takes it over. Later ones listen again, on its
	// address.
	Listener net.Listener
	Handler  http.Handler
	Log      zerolog.Logger

	ReadHeaderTimeout time.Duration // for a request's header; default 5 s
	ReadTimeout       time.Duration // for header and body; default 15 s
	WriteTimeout      time.Duration // from the end of the header to the end of the answer; default 30 s
	IdleTimeout       time.Duration // between requests on one connection; default 60 s
	DrainTimeout      time.Duration // how long requests under way may go on after the stop; default 30 s
	// DrainDelay is how long new requests are still accepted after the stop, while Check fails: as long as
	// the load balancer needs to notice. Default 0, since a single machine has no load balancer.
	DrainDelay     time.Duration
	MaxHeaderBytes int // default 32 KiB: identity networks return codes of up to 16 KiB
	MaxConns       int // connections at once; those beyond are closed at once; default 10,000
}

// The defaults of a ServerConfig. A header or a body comes in one packet from an honest client; the rest is
// patience with bad lines. The write timeout leaves room for reading a slow body and waiting for the store.
const (
	DefaultReadHeaderTimeout = 5 * time.Second
	DefaultReadTimeout       = 15 * time.Second
	DefaultWriteTimeout      = 30 * time.Second
	DefaultIdleTimeout       = 60 * time.Second
	// DefaultDrainTimeout: no answer takes longer, so that all requests are answered
	DefaultDrainTimeout   = DefaultWriteTimeout
	DefaultMaxHeaderBytes = 32 << 10
	DefaultMaxConns       = 10_000
)

// WithDefaults returns a copy with the defaults filled in.
func (c ServerConfig) WithDefaults() ServerConfig {
	for field, standard := range map[*time.Duration]time.Duration{
		&c.ReadHeaderTimeout: DefaultReadHeaderTimeout, &c.ReadTimeout: DefaultReadTimeout,
		&c.WriteTimeout: DefaultWriteTimeout,
		&c.IdleTimeout:  DefaultIdleTimeout, &c.DrainTimeout: DefaultDrainTimeout,
	} {
		if *field == 0 {
			*field = standard
		}
	}
	if c.MaxHeaderBytes == 0 {
		c.MaxHeaderBytes = DefaultMaxHeaderBytes
	}
	if c.MaxConns == 0 {
		c.MaxConns = DefaultMaxConns
	}
	return c
}

// Server is the actor that answers HTTP on one address. It may be served again after it stopped, on the same
// port.
type Server struct {
	c ServerConfig

	mu    sync.Mutex
	addr  string        // Listen, until a port is known
	ready chan struct{} // closed while listening
	open  bool          // listening and not stopping
}

// NewServer returns a server. It opens nothing until served.
func NewServer(c ServerConfig) (*Server, error) {
	c = c.WithDefaults()
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return nil, fmt.Errorf("listen address %q: %w; write host:port, as in 127.0.0.1:8080", c.Listen, err)
	}
	if c.Handler == nil {
		return nil, errors.New("web: the server has no handler")
	}
	return &Server{c: c, addr: c.Listen, ready: make(chan struct{})}, nil
}

// String names the actor in the supervisor's log.
func (s *Server) String() string { return s.c.Name + " server" }

// Handler returns the handler of the requests.
func (s *Server) Handler() http.Handler { return s.c.Handler }

// Addr returns the address, host:port. With port 0 the port is known once Ready is closed.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addr
}

// Ready returns a channel that is closed while the server listens.
func (s *Server) Ready() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ready
}

// ErrNotServing is what Check returns while the server accepts no requests, or is about to accept no more.
var ErrNotServing = errors.New("not taking requests")

// Check is the server's part of readiness: ErrNotServing unless it listens and is not stopping.
func (s *Server) Check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.open {
		return ErrNotServing
	}
	return nil
}

// Serve answers until ctx ends. Then Check fails; DrainDelay later no connection is accepted any more;
// requests under way may go on for DrainTimeout, after which their contexts end and their connections are
// closed. It returns when the last connection is gone.
func (s *Server) Serve(ctx context.Context) error {
	ln, err := s.listen(ctx)
	if err != nil {
		return err
	}
	draining := make(chan struct{})
	requests, abort := context.WithCancel(context.WithValue(context.WithoutCancel(ctx), drainingKey{},
		(<-chan struct{})(draining)))
	defer abort()
	conns := &connCount{limit: s.c.MaxConns}
	srv := s.server(requests, conns)
	s.up(ln)
	defer s.down()
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(ln) }()
	select {
	case err := <-failed:
		s.stopping(draining)
		abort()
		_ = srv.Close()
		conns.Wait()
		return fmt.Errorf("serve %s: %w", s.c.Name, err)
	case <-ctx.Done():
	}
	s.stopping(draining)
	s.linger()
	s.drain(ctx, srv, abort)
	err = <-failed
	conns.Wait()
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", s.c.Name, err)
	}
	return ctx.Err()
}

type drainingKey struct{}

// Draining returns a channel that is closed when the server of ctx's request begins to stop. A handler that
// holds an answer until something happens sends it then. Outside of a request it is nil.
func Draining(ctx context.Context) <-chan struct{} {
	draining, _ := ctx.Value(drainingKey{}).(<-chan struct{})
	return draining
}

func (s *Server) listen(ctx context.Context) (net.Listener, error) {
	if ln := s.takeListener(); ln != nil {
		return ln, nil
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", s.Addr())
	if err != nil {
		return nil, fmt.Errorf("listen for %s: %w", s.c.Name, err)
	}
	return ln, nil
}

func (s *Server) takeListener() net.Listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	ln := s.c.Listener
	s.c.Listener = nil
	return ln
}

func (s *Server) server(requests context.Context, conns *connCount) *http.Server {
	return &http.Server{
		Handler:           s.c.Handler,
		ReadHeaderTimeout: s.c.ReadHeaderTimeout,
		ReadTimeout:       s.c.ReadTimeout,
		WriteTimeout:      s.c.WriteTimeout,
		IdleTimeout:       s.c.IdleTimeout,
		MaxHeaderBytes:    s.c.MaxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return requests },
		ConnState:         conns.state,
		ErrorLog:          log.New(s.c.Log, "", 0),
	}
}

// linger goes on accepting requests for DrainDelay.
func (s *Server) linger() {
	if s.c.DrainDelay > 0 {
		<-time.After(s.c.DrainDelay)
	}
}

// drain waits for the requests under way, then ends them.
func (s *Server) drain(ctx context.Context, srv *http.Server, abort context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.c.DrainTimeout)
	defer cancel()
	if err := srv.Shutdown(ctx); err != nil {
		s.c.Log.Warn().Err(err).Str("server", s.c.Name).Msg("requests under way are cut off")
	}
	abort()
	_ = srv.Close()
}

func (s *Server) up(ln net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addr = ln.Addr().String() // the chosen port stays: clients and load balancers know it by now
	s.open = true
	close(s.ready)
	s.c.Log.Info().Str("server", s.c.Name).Str("address", s.addr).Msg("listening")
}

// stopping also ends the requests that hold their answers for something to happen.
func (s *Server) stopping(draining chan struct{}) {
	close(draining)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = false
}

func (s *Server) down() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = false
	s.ready = make(chan struct{})
}

// connCount counts connections, to bound them and to wait for the last one: http.Server.Close does not wait
// for handlers.
type connCount struct {
	sync.WaitGroup

	limit int

	mu   sync.Mutex
	open int
}

// state is an http.Server.ConnState hook. StateNew comes from the accepting goroutine, so that nothing is
// added once Serve of the http.Server has returned; StateClosed is the last that a connection's goroutine
// does.
func (c *connCount) state(conn net.Conn, st http.ConnState) {
	switch st {
	case http.StateNew:
		c.Add(1)
		if c.add(1) > c.limit {
			_ = conn.Close() // before a byte is read; a connection in a queue would hold others up too
		}
	case http.StateClosed, http.StateHijacked:
		c.add(-1)
		c.Done()
	case http.StateActive, http.StateIdle:
	}
}

func (c *connCount) add(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open += n
	return c.open
}
