package devnetwork

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/rs/zerolog"

	"verifyd/edge/network/netsettings"
)

const (
	codeLife  = time.Minute     // RFC 6749 §4.1.2 allows ten; a browser's redirect takes seconds
	tokenLife = 5 * time.Minute // access and ID tokens
	maxKept   = 10_000          // codes, and access tokens; the oldest give way
	stopTime  = 2 * time.Second // for requests under way when Serve is told to stop
)

// Config says where the dev network listens and whom it serves.
type Config struct {
	Listen string // loopback address; default 127.0.0.1:0, where the system chooses a port
	// https origin under which a proxy shows it; then Listen may be any address. The default is http and what
	// Listen gives
	Issuer       string
	ClientID     string      // default verifyd
	ClientSecret string      // default random
	RedirectURIs []string    // compared exactly (RFC 9700 §2.1); AllowRedirect adds more
	TLS          *tls.Config // set: it is shown over TLS, without a proxy
	// SignedInAgo makes it a provider that does not have users sign in again: so long ago, it says, they did;
	// for tests
	SignedInAgo time.Duration
	Now         func() time.Time
	Logger      zerolog.Logger // the HTTP server's own complaints; the zero value drops them
}

func (c Config) withDefaults() Config {
	if c.Listen == "" {
		c.Listen = "127.0.0.1:0"
	}
	if c.ClientID == "" {
		c.ClientID = "verifyd"
	}
	if c.ClientSecret == "" {
		c.ClientSecret = newSecret()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Provider is the dev network. Its methods are safe for concurrent use.
type Provider struct {
	cfg    Config
	signer jose.Signer
	keys   jose.JSONWebKeySet // public
	codes  *expiring[grant]
	tokens *expiring[string] // access token → subject

	mu        sync.Mutex
	listener  net.Listener // between Listen and Serve
	addr      string       // where to listen; with the port once it is known
	issuer    string       // empty before the first Listen
	redirects []string
}

// New makes a dev network that does not listen yet. Without an issuer of its own it refuses an address that
// is not a loopback one.
func New(cfg Config) (*Provider, error) {
	cfg = cfg.withDefaults()
	host, _, err := net.SplitHostPort(cfg.Listen)
	switch {
	case err != nil || cfg.Issuer == "" && !isLoopback(host):
		return nil, fmt.Errorf("dev network: listen %q: only loopback is allowed, for instance 127.0.0.1:0",
			cfg.Listen)
	case cfg.Issuer != "" && !isOrigin(cfg.Issuer):
		return nil, fmt.Errorf("dev network: issuer %q: not an https origin, for instance "+
			"https://network.localhost", cfg.Issuer)
	}
	if styleErr != nil {
		return nil, styleErr
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make dev network key: %w", err)
	}
	private := jose.JSONWebKey{Key: key, KeyID: newSecret()[:8], Algorithm: string(jose.ES256), Use: "sig"}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: private},
		(&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return nil, fmt.Errorf("make dev network signer: %w", err)
	}
	return &Provider{
		cfg:       cfg,
		signer:    signer,
		keys:      jose.JSONWebKeySet{Keys: []jose.JSONWebKey{private.Public()}},
		codes:     newExpiring[grant](maxKept, codeLife, cfg.Now),
		tokens:    newExpiring[string](maxKept, tokenLife, cfg.Now),
		addr:      cfg.Listen,
		redirects: slices.Clone(cfg.RedirectURIs),
	}, nil
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

func isOrigin(issuer string) bool {
	u, err := url.Parse(issuer)
	return err == nil && u.Hostname() != "" && issuer == "https://"+u.Host
}

// newSecret makes 32 random bytes in unpadded base64url.
func newSecret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails: the program ends if the system's source is broken
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// Listen takes the address, so that Issuer and Settings are known before Serve. Harmless to repeat before
// Serve, which calls it by itself. After the first time the port stays the same, so that a restarted Serve is
// the same issuer.
func (p *Provider) Listen() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		return nil
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", p.addr)
	if err != nil {
		return fmt.Errorf("listen for dev network: %w", err)
	}
	// localhost is whatever the machine's hosts file says.
	if bound, ok := l.Addr().(*net.TCPAddr); p.cfg.Issuer == "" && (!ok || !bound.IP.IsLoopback()) {
		_ = l.Close()
		return errors.New("listen for dev network: the address is not a loopback one; right would be " +
			"127.0.0.1:0")
	}
	p.addr, p.issuer = l.Addr().String(), cmp.Or(p.cfg.Issuer, "http://"+l.Addr().String())
	if p.cfg.TLS != nil {
		l, p.issuer = tls.NewListener(l, p.cfg.TLS), cmp.Or(p.cfg.Issuer, "https://"+p.addr)
	}
	p.listener = l
	return nil
}

// Close releases the address when Serve was never called; Serve does so itself.
func (p *Provider) Close() error {
	if l := p.takeListener(); l != nil {
		return l.Close()
	}
	return nil
}

func (p *Provider) takeListener() net.Listener {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.listener
	p.listener = nil
	return l
}

// Serve answers until ctx ends or the listener fails, and returns when its server has stopped. It may be
// called again: port, keys, client and open codes stay.
func (p *Provider) Serve(ctx context.Context) error {
	if err := p.Listen(); err != nil {
		return err
	}
	l := p.takeListener()
	if l == nil {
		return errors.New("serve dev network: it is being served or closed already")
	}
	srv := &http.Server{
		Handler:           p.routes(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      10 * time.Second,
		IdleTimeout:       30 * time.Second,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          log.New(p.cfg.Logger, "", 0),
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	select {
	case err := <-ended:
		_ = srv.Close()
		return fmt.Errorf("serve dev network: %w", err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	if srv.Shutdown(stop) != nil {
		_ = srv.Close()
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve dev network: %w", err)
	}
	return ctx.Err()
}

// Issuer is the issuer identifier, http://127.0.0.1:PORT unless Config has another; empty before Listen.
func (p *Provider) Issuer() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.issuer
}

// Settings are what network.New needs to use the dev network. Listen comes first.
func (p *Provider) Settings() netsettings.Settings {
	return netsettings.Settings{
		ID:           "dev",
		Name:         "Dev Network (not real)",
		Kind:         netsettings.KindOIDC,
		Issuer:       p.Issuer(),
		IdentitiesOf: identities,
		ClientID:     p.cfg.ClientID,
		ClientSecret: p.cfg.ClientSecret,
		Scopes:       []string{"openid", "profile"},
		Platforms:    []string{netsettings.AnyPlatform}, // anybody signs in as anybody
	}
}

// identities names the network's identities, which are the same wherever it listens, and nobody else's.
const identities = "urn:verifyd:dev-network"

// AllowRedirect registers one more redirect URI, for instance network.Network.RedirectURI of the network that
// Settings made.
func (p *Provider) AllowRedirect(uri string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.redirects = append(p.redirects, uri)
}

func (p *Provider) allowsRedirect(uri string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.redirects, uri)
}
