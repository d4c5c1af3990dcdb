package edge

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"

	"verifyd/edge/account"
	"verifyd/edge/limit"
	"verifyd/sessions"
	"verifyd/sessions/urlpolicy"
)

// Keys knows the API keys. Its errors are those of package account.
type Keys interface {
	Lookup(key string) (account.Principal, error)
}

// Uses records each key that was accepted; an *account.Uses. It never waits.
type Uses interface {
	RecordUse(key string, at time.Time)
}

// Sessions is what the edge does with sessions; a *sessions.Store.
type Sessions interface {
	Create(ctx context.Context, r sessions.Request) (sessions.Session, sessions.Token, error)
	Read(ctx context.Context, id sessions.ID) (sessions.View, error)
	CompleteSession(ctx context.Context, s sessions.Session, o sessions.Outcome) (sessions.Completion, error)
	Resend(ctx context.Context, id sessions.ID, by string) (sessions.Resend, error)
}

// Rates limits how fast a key may start sessions; a *limit.Rates.
type Rates interface {
	RateOf(k account.Key) account.Rate
	Allow(k account.Key, now time.Time) limit.Decision
}

// FailedKeys limits how often an address may come without a valid key; a *limit.Failures.
type FailedKeys interface {
	Fail(address netip.Addr, now time.Time) limit.Decision
}

// Quota limits how many sessions an account may start in a month; a *limit.Quota.
type Quota interface {
	Take(ctx context.Context, account string, quota int64, now time.Time) (limit.Usage, error)
	GiveBack(ctx context.Context, account string, now time.Time) error
	Limit(own int64) int64
}

// Callbacks says where a callback may go; a *urlpolicy.Policy. Its error is a *urlpolicy.Fault.
type Callbacks interface {
	Parse(raw string) (urlpolicy.URL, error)
}

// Route is one row of the route table, for what others mount.
type Route struct {
	Method string // an HTTP method; HEAD comes with GET unless it has a row of its own
	// Path starts with a slash, below the base URL. "{name}" as a whole segment matches any one segment; the
	// handler reads it with (*http.Request).PathValue. Logs and metrics show this pattern, never the path
	// itself.
	Path    string
	Name    string // shown as the route in metrics: a few words with underscores, as in "sign_in_return"
	Handler http.Handler
}

// Config is what the public handler needs. Fields without a default are required.
type Config struct {
	// {base_url} of the contract, http or https; a path prefix goes before every route
	BaseURL    string
	Keys       Keys          //
	Uses       Uses          // default: nothing is recorded
	Sessions   Sessions      //
	Turns      Turns         //
	Lister     Lister        //
	Changes    Changes       //
	Usages     Usages        //
	Rates      Rates         //
	Quota      Quota         //
	Callbacks  Callbacks     //
	Listeners  Listeners     // where callbacks for developers' own machines come in
	ListenBeat time.Duration // how often a listener hears something; default 15 s
	// whether the store is so full that only open sessions may go on; default: never
	StoreHigh func() bool
	// why nothing can be stored any more, as where the store was moved away; default: it can
	StoreLeft      func() error
	TrustedProxies []netip.Prefix // whose X-Forwarded-For counts; default: nobody's
	Routes         []Route        // what others mount
	// for a browser whose address leads nowhere; default: a problem document, as for programs
	Nowhere      Page
	Metrics      prometheus.Registerer // default: a registry that nobody reads
	Tracer       trace.Tracer          // default: nothing is traced
	Log          zerolog.Logger        //
	Now          func() time.Time      // default: time.Now
	StoreTimeout time.Duration         // how long one request may wait for JetStream in all; default 10 s
	FailedKeys   FailedKeys            // default: no limit
	TestKeys     bool                  // whether test keys are taken; default: they get 401
	// requests that wait for a session to change, at once; default 1,000, a quarter of it for one account
	MaxWaiting int
	// lists of sessions that are made at once; default 32, a quarter of it for one account
	MaxListing int
}

// defaultStoreTimeout is twice what one write waits for its acknowledgement: a leader election fits into it,
// and the answer leaves well before DefaultWriteTimeout.
const defaultStoreTimeout = 10 * time.Second

// Page answers a browser with a page of the given status.
type Page func(w http.ResponseWriter, r *http.Request, status int)

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	if c.StoreHigh == nil {
		c.StoreHigh = func() bool { return false }
	}
	if c.StoreLeft == nil {
		c.StoreLeft = func() error { return nil }
	}
	if c.Metrics == nil {
		c.Metrics = prometheus.NewRegistry()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.ListenBeat == 0 {
		c.ListenBeat = listenBeat
	}
	if c.StoreTimeout == 0 {
		c.StoreTimeout = defaultStoreTimeout
	}
	if c.MaxWaiting == 0 {
		c.MaxWaiting = defaultMaxWaiting
	}
	if c.MaxListing == 0 {
		c.MaxListing = defaultMaxListing
	}
	return c
}

func (c Config) validate() error {
	for name, missing := range map[string]bool{
		"Keys": c.Keys == nil, "Sessions": c.Sessions == nil, "Turns": c.Turns == nil,
		"Usages": c.Usages == nil, "Lister": c.Lister == nil, "Changes": c.Changes == nil,
		"Rates": c.Rates == nil, "Quota": c.Quota == nil,
		"Callbacks": c.Callbacks == nil, "Listeners": c.Listeners == nil,
	} {
		if missing {
			return fmt.Errorf("edge: %s is missing", name)
		}
	}
	if c.StoreTimeout < 0 {
		return fmt.Errorf("edge: StoreTimeout is %s, it must be positive", c.StoreTimeout)
	}
	if c.MaxWaiting < 0 {
		return fmt.Errorf("edge: MaxWaiting is %d, it must be positive", c.MaxWaiting)
	}
	if c.MaxListing < 0 {
		return fmt.Errorf("edge: MaxListing is %d, it must be positive", c.MaxListing)
	}
	return nil
}

// ErrBaseURL is returned, wrapped with what is wrong, for a base URL that cannot be used.
var ErrBaseURL = errors.New(
	"not a base URL; write where users reach the service, as in https://verify.example.com or https://example.com/verify")

// ParseBaseURL checks a base URL and returns it without its final slashes, and the path prefix that every
// route is mounted under: empty, or with a slash in front and none at its end. The error is ErrBaseURL.
func ParseBaseURL(raw string) (base, prefix string, err error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return "", "", fmt.Errorf("%w: it cannot be parsed", ErrBaseURL)
	case u.Scheme != "https" && u.Scheme != "http" || u.Opaque != "":
		return "", "", fmt.Errorf("%w: it does not start with https:// or http://", ErrBaseURL)
	case u.Hostname() == "":
		return "", "", fmt.Errorf("%w: it has no host", ErrBaseURL)
	case u.User != nil:
		return "", "", fmt.Errorf("%w: it has a user name or password", ErrBaseURL)
	case u.RawQuery != "" || u.ForceQuery || strings.Contains(raw, "#"):
		return "", "", fmt.Errorf("%w: it has a query or fragment", ErrBaseURL)
	}
	prefix = strings.TrimRight(u.Path, "/")
	if err := checkPrefix(prefix, u.RawPath); err != nil {
		return "", "", err
	}
	return u.Scheme + "://" + u.Host + prefix, prefix, nil
}

// checkPrefix takes only what needs no escaping and means nothing to the router: the prefix is compared as it
// stands.
func checkPrefix(prefix, rawPath string) error {
	plain := !strings.ContainsFunc(prefix, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') &&
			!strings.ContainsRune("/-._~", r)
	})
	if !plain || rawPath != "" || strings.Contains(prefix, "//") || strings.Contains(prefix+"/", "/./") ||
		strings.Contains(prefix+"/", "/../") {
		return fmt.Errorf("%w: its path may hold letters, digits and - . _ ~ between single slashes",
			ErrBaseURL)
	}
	return nil
}

// accountShare is the part of the places that one account may hold: a quarter.
func accountShare(id string, places int) limit.Share {
	return limit.Share{Of: id, Max: max(places/4, 1)}
}
