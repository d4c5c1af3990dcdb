// Package servers looks at the external NATS servers of a process, at each by a connection of its own:
// whether the process could use it now, and until when its certificate is valid.
//
// The connection that the process works with answers neither. Its client reports why a server could not be
// dialled, and not why TLS or the login failed, nor at which server. And a connection that has stood for
// months has seen a certificate that may have been renewed since.
package servers

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"verifyd/natsconf/certificate"
)

const (
	// lookEvery is the pause between looks. The shortest certificates in use are valid for hours.
	lookEvery = 10 * time.Minute
	// lookLost is the pause while the process has no connection: each look logs reasons that are new.
	lookLost = 5 * time.Second
	// lookTimeout bounds one look. A server that is well answers within milliseconds.
	lookTimeout = 5 * time.Second
)

// Servers are the external servers of a process. All methods of a nil *Servers do nothing: the embedded
// server is part of the process.
type Servers struct {
	urls    []string
	options func() ([]nats.Option, error)
	log     zerolog.Logger
	changed chan struct{} // the connection was lost
	looking sync.Mutex    // held by a look: an earlier one must not overwrite what a later one has found

	mu           sync.Mutex
	lost         bool
	unusable     map[string]string          // why a server cannot be used, by its address
	logged       map[string]map[string]bool // the reasons that were logged since it could be used
	certificates map[string]certificate.Certificate
}

// New returns the servers of a list of URLs. options returns how to connect to them now: a credential may be
// replaced at any time.
func New(urls string, options func() ([]nats.Option, error), log zerolog.Logger) *Servers {
	return &Servers{
		urls: strings.Split(urls, ","), options: options, log: log, changed: make(chan struct{}, 1),
		unusable: map[string]string{}, logged: map[string]map[string]bool{},
		certificates: map[string]certificate.Certificate{},
	}
}

// String names the actor in the supervisor's log.
func (s *Servers) String() string { return "NATS servers" }

// Serve looks at once, then now and then, and often while the process has no connection, until ctx ends.
func (s *Servers) Serve(ctx context.Context) error {
	for {
		s.Look(ctx)
		select {
		case <-s.changed:
		case <-time.After(s.pause()):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *Servers) pause() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost {
		return lookLost
	}
	return lookEvery
}

// SetLost is called when the process has lost its connection, and when that is back.
func (s *Servers) SetLost(lost bool) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = lost
	if lost {
		select {
		case s.changed <- struct{}{}:
		default: // there will be a look anyway
		}
	}
}

// Look looks at all servers at the same time.
func (s *Servers) Look(ctx context.Context) {
	if s == nil {
		return
	}
	s.looking.Lock()
	defer s.looking.Unlock()
	var looks sync.WaitGroup
	for _, at := range s.urls {
		looks.Go(func() {
			if state, err := s.connect(ctx, at); ctx.Err() == nil {
				s.note(addressOf(at), state, err)
			}
		})
	}
	looks.Wait()
}

// connect connects to one server, and leaves it.
func (s *Servers) connect(ctx context.Context, at string) (state tls.ConnectionState, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	options, err := s.options()
	if err != nil {
		return state, err
	}
	d, closed := &dialer{ctx: ctx}, make(chan struct{})
	nc, err := nats.Connect(at, slices.Concat(options, []nats.Option{
		// else the client would go on to a server that this one names, and answer for that
		nats.NoReconnect(), nats.IgnoreDiscoveredServers(), nats.SetCustomDialer(d),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }),
	})...)
	if err != nil && d.failure != nil {
		return state, d.failure // to the client, a refused connection is no error
	}
	if err != nil {
		return state, err
	}
	state, err = nc.TLSConnectionState()
	if errors.Is(err, nats.ErrConnectionNotTLS) {
		err = nil
	}
	nc.Close()
	<-closed
	return state, err
}

// dialer makes connections that end with a context.
type dialer struct {
	ctx     context.Context //nolint:containedctx // of one look
	failure error
}

// Dial is part of nats.CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(d.ctx, network, address)
	if d.failure = err; err == nil {
		context.AfterFunc(d.ctx, func() { _ = c.Close() })
	}
	return c, err
}

// varying matches what differs between errors of one reason: instants, ports.
var varying = regexp.MustCompile(`[0-9]+`)

// note keeps what a look has found, and logs a reason that is new.
func (s *Servers) note(address string, state tls.ConnectionState, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := certificate.Shown(address, state, err); ok {
		s.certificates[address] = c
	}
	if err == nil {
		delete(s.unusable, address)
		delete(s.logged, address)
		return
	}
	s.unusable[address] = err.Error()
	reason := varying.ReplaceAllString(err.Error(), "#")
	if s.logged[address][reason] {
		return
	}
	if s.logged[address] == nil {
		s.logged[address] = map[string]bool{}
	}
	s.logged[address][reason] = true
	s.log.Warn().Err(err).Str("server", address).Msg("a NATS server cannot be used")
}

// Unusable returns which servers could not be used at the last look and why, as an error; nil if there are
// none.
func (s *Servers) Unusable() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.unusable) == 0 {
		return nil
	}
	var all []string
	for _, address := range slices.Sorted(maps.Keys(s.unusable)) {
		all = append(all, address+": "+s.unusable[address])
	}
	return errors.New(strings.Join(all, "; "))
}

// Certificates returns what the servers have shown at the last looks.
func (s *Servers) Certificates() []certificate.Certificate {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.certificates), func(a, b certificate.Certificate) int {
		return strings.Compare(a.Of, b.Of)
	})
}

// addressOf returns the host and port of a URL, without a user and password.
func addressOf(at string) string {
	u, err := url.Parse(at)
	if err != nil {
		return "?"
	}
	return u.Host
}
