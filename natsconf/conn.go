package natsconf

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"verifyd/natsconf/permission"
	"verifyd/natsconf/servers"
	"verifyd/natsconf/storetime"
	"verifyd/natsconf/wait"
)

// ackTimeout is how long to wait for an acknowledgement or an answer. A synced write takes well under 10 ms;
// a cluster that elects a leader takes a second or two.
const ackTimeout = 5 * time.Second

// Server is a NATS server of this process, whose store may fail under it.
type Server interface {
	nats.InProcessConnProvider
	// Credential returns the user and password that the server accepts.
	Credential() (user, password string)
	// Failure returns why the store must not be used, or nil.
	Failure() error
	// Failed returns a channel that is closed when the store fails the next time, or has failed.
	Failed() <-chan struct{}
	// Abandoned returns a channel that is closed when the store has failed permanently.
	Abandoned() <-chan struct{}
	// Damaged returns why a stream must not be used although the others may be, or nil.
	Damaged(stream string) error
	// WentBack is called if a stream does not hold a sequence any more that was seen in it.
	WentBack(stream string, seen uint64)
}

// ConnectOptions configure how to reach JetStream: an embedded server, or a URL.
type ConnectOptions struct {
	Embedded  Server         // the server of this process; URL is ignored
	URL       string         // nats:// or tls://, several separated by commas
	CredsFile string         // NATS credentials file, or the seed of an nkey, for an external server
	User      string         // or a user and password, as the embedded server's endpoint file has them
	Password  string         //
	RootCAs   *x509.CertPool // extra roots for the server's certificate
	Name      string         // shown in the server's connection list
	Log       zerolog.Logger
	Now       func() time.Time // the machine's clock, which tests set; nil: time.Now
}

const (
	// reconnectWait is the pause between tries to reconnect, which go on forever.
	reconnectWait = 500 * time.Millisecond
	// A server that is stopped, or cut off silently, is left for another one after 4 to 6 s, about when the
	// first publish to it is given up. With the client's defaults an edge went on asking such a server for
	// more than a minute, while two others were healthy.
	pingEvery       = 2 * time.Second
	pingsUnanswered = 2
)

// Conn is a connection to JetStream that comes back by itself, forever.
type Conn struct {
	*Reader

	NC      *nats.Conn
	JS      jetstream.JetStream
	Clock   *storetime.Clock
	Servers *servers.Servers // nil: the server is in this process

	mu     sync.Mutex
	back   chan struct{} // closed at the next reconnect
	lost   time.Time     // since when the connection is lost; zero while it is up
	closed chan struct{}
}

// Connect dials. The first connection is tried until ctx ends; afterwards the connection comes back by
// itself.
func Connect(ctx context.Context, o ConnectOptions) (*Conn, error) {
	c := &Conn{back: make(chan struct{}), closed: make(chan struct{})}
	if o.Embedded == nil {
		c.Servers = servers.New(o.URL, func() ([]nats.Option, error) {
			endpoint, err := endpointOptions(o, &credential{path: o.CredsFile})
			return append(endpoint, nats.Name(o.Name+" look"), nats.Timeout(bootTry)), err
		}, o.Log)
	}
	if err := c.dial(ctx, o); err != nil {
		return nil, err
	}
	// Without a time-out of their own, publishes that the server never answers (it reports nothing about a
	// failed disk) would take up the client's places permanently.
	js, err := jetstream.New(c.NC, jetstream.WithDefaultTimeout(ackTimeout),
		jetstream.WithPublishAsyncTimeout(ackTimeout))
	if err != nil {
		c.NC.Close()
		return nil, fmt.Errorf("set up JetStream: %w", err)
	}
	c.JS = js
	c.Reader = newReader(js, o.Embedded)
	c.Clock = storetime.New(c.serverTime, o.Now)
	return c, nil
}

// dial tries until there is a connection, or ctx ends. It looks at the servers at the same time: of several
// the client reports the last, and one that says nothing must not delay the connection to another.
func (c *Conn) dial(ctx context.Context, o ConnectOptions) error {
	looking, stop := context.WithCancel(ctx)
	var looks sync.WaitGroup
	defer looks.Wait()
	defer stop()
	look := make(chan struct{}, 1) // full during a look
	for {
		user := &credential{path: o.CredsFile}
		endpoint, err := endpointOptions(o, user)
		if err != nil {
			return err
		}
		nc, err := nats.Connect(o.URL, append(c.options(o), endpoint...)...)
		if err == nil {
			c.NC = nc
			user.conn.Store(nc)
			return nil
		}
		if permanent(err) {
			return fmt.Errorf("connect to NATS at %s: %w", redactURL(o.URL), hideURL(err))
		}
		select {
		case look <- struct{}{}:
			looks.Go(func() { c.Servers.Look(looking); <-look })
		default:
		}
		if over := wait.Pause(ctx, reconnectWait); over != nil {
			if reasons := c.Servers.Unusable(); reasons != nil {
				err = reasons
			}
			return fmt.Errorf("connect to NATS at %s: %w (last: %w)", redactURL(o.URL), over, hideURL(err))
		}
	}
}

func (c *Conn) options(o ConnectOptions) []nats.Option {
	return []nats.Option{
		nats.Name(o.Name),
		nats.MaxReconnects(-1),
		// credentials are rotated; the default gives up for good at the second refusal
		nats.IgnoreAuthErrorAbort(),
		nats.ReconnectWait(reconnectWait),
		// a message buffered while away might be stored long after its caller gave up
		nats.ReconnectBufSize(-1),
		nats.Timeout(bootTry),
		nats.PingInterval(pingEvery),
		nats.MaxPingsOutstanding(pingsUnanswered),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			c.noteLoss()
			if err != nil {
				o.Log.Warn().Err(err).Msg("NATS connection lost, reconnecting")
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) {
			o.Log.Info().Msg("NATS connection is back")
			c.announceBack()
		}),
		nats.ErrorHandler(func(_ *nats.Conn, s *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrPermissionViolation) {
				o.Log.Error().Err(err).Msg(
					"NATS refuses what this credential may not do; verifyd check lists what it lacks")
				return
			}
			o.Log.Warn().Err(err).Str("subject", subjectOf(s)).Msg("NATS reports an error")
		}),
		nats.ClosedHandler(func(*nats.Conn) { close(c.closed) }),
	}
}

// endpointOptions returns how to reach the server, and be let in. The answers to a connection come below the
// name of the user that it begins as, also when its credential is replaced by that of another one: all users
// that a role has had may listen there (package serverconf).
func endpointOptions(o ConnectOptions, c *credential) ([]nats.Option, error) {
	if e := o.Embedded; e != nil {
		return []nats.Option{nats.InProcessServer(e), nats.UserInfo(e.Credential())}, nil
	}
	var opts []nats.Option
	user := userOfURL(o.URL)
	if o.CredsFile != "" {
		proof, err := c.options()
		if err != nil {
			return nil, err
		}
		user, opts = c.user, append(opts, proof)
	}
	if o.User != "" {
		user, opts = o.User, append(opts, nats.UserInfo(o.User, o.Password))
	}
	if isToken(user) {
		opts = append(opts, nats.CustomInboxPrefix(permission.InboxOf(user)))
	}
	if strings.Contains(o.URL, "tls://") {
		opts = append(opts, nats.Secure(&tls.Config{MinVersion: tls.VersionTLS12, RootCAs: o.RootCAs}))
	}
	return opts, nil
}

// Close ends the connection and waits until its goroutines have ended.
func (c *Conn) Close() {
	c.NC.Close()
	<-c.closed
}

// Closed returns a channel that is closed when the connection has ended permanently, which only Close should
// bring about.
func (c *Conn) Closed() <-chan struct{} { return c.closed }

// Connected reports whether the connection is up at this moment.
func (c *Conn) Connected() bool { return c.NC.IsConnected() }

// Back returns a channel that is closed when the connection has come back the next time. A caller that reads
// from a consumer in the server's memory starts again then: a restarted server has forgotten it.
func (c *Conn) Back() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.back
}

// LostSince returns since when the connection is lost; zero while it is up.
func (c *Conn) LostSince() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

func (c *Conn) noteLoss() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost.IsZero() {
		c.lost = time.Now()
	}
	c.Servers.SetLost(true)
}

func (c *Conn) announceBack() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = time.Time{}
	c.Servers.SetLost(false)
	close(c.back)
	c.back = make(chan struct{})
}

// Emit publishes without asking for an answer, for events that no promise depends on.
func (c *Conn) Emit(subject string, data []byte) { _ = c.NC.Publish(subject, data) }

// EmitMsg is Emit for a message with headers. If several have the same id (nats.MsgIdHdr), the stream keeps
// the first within two minutes, whichever process sends them.
func (c *Conn) EmitMsg(msg *nats.Msg) { _ = c.NC.PublishMsg(msg) }

// permanent reports whether a connection error would be the same at the next try.
func permanent(err error) bool {
	if _, ok := errors.AsType[*url.Error](err); ok {
		return true
	}
	return errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) ||
		errors.Is(err, nats.ErrSecureConnRequired) ||
		strings.Contains(err.Error(), "nkeys:") || strings.Contains(err.Error(), "no such file")
}

// hideURL keeps a URL that does not parse, and a password in it, out of error texts.
func hideURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// redactURL keeps passwords in NATS URLs out of error texts.
func redactURL(s string) string {
	var hidden []string
	for part := range strings.SplitSeq(s, ",") {
		if at := strings.LastIndexByte(part, '@'); at >= 0 {
			scheme, _, _ := strings.Cut(part, "://")
			part = scheme + "://…@" + part[at+1:]
		}
		hidden = append(hidden, part)
	}
	return strings.Join(hidden, ",")
}

func subjectOf(s *nats.Subscription) string {
	if s == nil {
		return ""
	}
	return s.Subject
}
