package callback

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/netip"
	"time"

	"verifyd/sessions/urlpolicy"
)

const (
	defaultTimeout   = 10 * time.Second
	defaultUserAgent = "verifyd"

	// sessionCacheSize bounds the TLS sessions kept for resumption. Each holds the receiver's certificates,
	// about 5 KiB.
	sessionCacheSize = 512
)

// Config defines how callbacks are sent. The zero value is usable: public addresses, the system's
// authorities, 10 s.
type Config struct {
	// RootCAs are the authorities that receivers' certificates must come from; nil means the system's.
	RootCAs *x509.CertPool
	// VerifyReceiver and VerifyProxy are called in each TLS handshake with one, after its certificate was
	// accepted, as a tls.Config's VerifyConnection is; nil means nothing more is verified.
	VerifyReceiver, VerifyProxy func(tls.ConnectionState) error
	// Policy decides where callbacks may go; nil means public addresses only, on every port.
	Policy *urlpolicy.Policy
	// Timeout bounds a whole attempt: the dial, if there was one, the write, and the answer. The dial, which
	// is DNS, connect (with the whole exchange with an egress proxy) and TLS, gets half of it, the receiver
	// the other half. Default 10 s.
	Timeout time.Duration
	// UserAgent is the User-Agent field, "verifyd/VERSION". Default "verifyd".
	UserAgent string
	// Resolver provides the Dial and StrictErrors of the name resolution, for instance to use your own name
	// servers; nil means the system's name servers. Names are always resolved by Go: the C resolver takes
	// 0x7f000001 for an address.
	Resolver *net.Resolver
	// Dial connects to a receiver's address, which Policy has judged; nil means a system socket.
	Dial DialFunc
	// Proxy is the egress proxy that every callback goes through; nil means that receivers are dialled
	// directly. It is not taken from the environment.
	Proxy *Proxy
}

// withDefaults returns a copy with every empty field filled.
func (c Config) withDefaults() Config {
	if c.Policy == nil {
		c.Policy = urlpolicy.NewPolicy(nil, nil)
	}
	if c.Timeout <= 0 {
		c.Timeout = defaultTimeout
	}
	if c.UserAgent == "" {
		c.UserAgent = defaultUserAgent
	}
	c.Resolver = newResolver(c.Resolver)
	return c
}

// newResolver returns a resolver that closes its sockets when no caller waits for the name any more. Go's own
// would hold a socket and a goroutine for each query until resolv.conf's time-out, five seconds, however
// early the dial was given up.
func newResolver(from *net.Resolver) *net.Resolver {
	if from == nil {
		from = new(net.Resolver)
	}
	dial := from.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	return &net.Resolver{
		PreferGo:     true,
		StrictErrors: from.StrictErrors,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			if err == nil {
				context.AfterFunc(ctx, func() { _ = conn.Close() }) // the resolver ends ctx with the query
			}
			return conn, err
		},
	}
}

// DialFunc connects to an address; (*net.Dialer).DialContext is one.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Client dials receivers and prepares requests. It is safe for concurrent use and owns no goroutine and no
// connection.
type Client struct {
	config Config
	dialer net.Dialer
	tls    *tls.Config // cloned for each dial, which sets the server's name

	gateway *gateway // nil: no egress proxy
	signers signers
}

// New returns a client.
func New(config Config) *Client {
	config = config.withDefaults()
	c := &Client{
		config: config,
		// Connections live for seconds, so TCP keep-alive probes would only cost system calls.
		dialer: net.Dialer{Control: config.Policy.Control, KeepAlive: -1},
		tls: &tls.Config{
			RootCAs:            config.RootCAs,
			VerifyConnection:   config.VerifyReceiver,
			MinVersion:         tls.VersionTLS12,
			NextProtos:         []string{"http/1.1"},
			ClientSessionCache: tls.NewLRUClientSessionCache(sessionCacheSize),
			// Whole records: a request is one record and one system call, not a first piece of 1,400 bytes
			// and the rest.
			DynamicRecordSizingDisabled: true,
		},
	}
	if config.Proxy != nil {
		c.gateway = newGateway(config)
	}
	return c
}

// dial connects to a receiver's address. The policy judges it immediately before.
func (c *Client) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if c.config.Dial == nil {
		return c.dialer.DialContext(ctx, network, address)
	}
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	if err := c.config.Policy.CheckAddr(to); err != nil {
		return nil, err
	}
	return c.config.Dial(ctx, network, address)
}
