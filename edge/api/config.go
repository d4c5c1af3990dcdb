package api

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"

	"verifyd/edge/account"
	"verifyd/edge/account/signing"
	"verifyd/edge/limit"
	"verifyd/edge/places"
	"verifyd/edge/request"
	"verifyd/edge/web"
	"verifyd/sessions"
	"verifyd/sessions/facts"
	"verifyd/sessions/timeline"
	"verifyd/sessions/urlpolicy"
)

// Keys knows the API keys. Its errors are those of package account.
type Keys interface {
	Lookup(key string) (account.Principal, error)
	// SeenSince reports whether all keys are known that were stored before an instant.
	SeenSince(t time.Time) bool
	Keys(account string) []account.Key
}

// Uses records each key that was accepted; a *keyuse.Uses. It never waits.
type Uses interface {
	RecordUse(key string, at time.Time)
}

// Sessions is what the edge does with sessions; a *store.Store.
type Sessions interface {
	Create(ctx context.Context, r sessions.Request) (sessions.Session, sessions.Token, error)
	ReadOf(ctx context.Context, account string, id sessions.ID) (facts.View, error)
	Explain(ctx context.Context, v *facts.View)
	Complete(ctx context.Context, s sessions.Session, o sessions.Outcome) (sessions.Completion, error)
	Resend(ctx context.Context, id sessions.ID, by string) (facts.Resend, error)
	Confirm(ctx context.Context, s sessions.Session, user, code string) (sessions.Completion, error)
	Emit(e timeline.Event)
}

// Rates limits how fast a key may start sessions; a *limit.Rates.
type Rates interface {
	RateOf(k account.Key) account.Rate
	Allow(k account.Key, now time.Time) limit.Decision
}

// Quota limits how many sessions an account may start in a month; a *limit.Quota.
type Quota interface {
	Take(ctx context.Context, account string, quota int64, now time.Time) (limit.Usage, error)
	GiveBack(ctx context.Context, account string, now time.Time) error
	GiveBackIf(ctx context.Context, account string, now time.Time,
		free func(context.Context) (bool, error)) error
	Limit(own int64) int64
}

// Callbacks decides where a callback may go; a *urlpolicy.Policy. Its error is a *urlpolicy.Fault.
type Callbacks interface {
	Parse(raw string) (urlpolicy.URL, error)
}

// Config is what the public handler needs. Fields without a default are required.
type Config struct {
	// {base_url} of the contract, http or https; a path prefix goes before every route
	BaseURL      string
	Keys         Keys          //
	Signing      *signing.Keys // derives the public keys of accounts
	Uses         Uses          // default: nothing is recorded
	Sessions     Sessions      //
	Reservations Reservations  //
	Lister       Lister        //
	Changes      Changes       //
	Usages       Usages        //
	Rates        Rates         //
	Quota        Quota         //
	Callbacks    Callbacks     //
	Listeners    Listeners     // where callbacks for developers' own machines come in
	ListenBeat   time.Duration // how often a listener receives a line; default 15 s
	// whether the store is so full that only open sessions may go on; default: never
	StoreHigh func() bool
	// why nothing can be stored any more, for instance if the store was moved away; default: it can
	StoreLeft      func() error
	TrustedProxies []netip.Prefix // proxies whose X-Forwarded-For is trusted; default: none
	Routes         []web.Route    // what others mount
	// for a browser at an unknown address; default: a problem document, as for programs
	Nowhere    web.Page
	Metrics    prometheus.Registerer // default: a private registry
	Tracer     trace.Tracer          // default: nothing is traced
	Log        zerolog.Logger        //
	Now        func() time.Time      // default: time.Now
	Store      *places.Waiting       // how requests wait for the store; default: as by limit's defaults
	FailedKeys request.FailedKeys    // default: no limit
	Networks   []string              // ids of those that users sign in with
	Levels     Levels                // what sessions ask to be proven
	// whether an identity network proves who has an account on a platform; default: none does
	Proves     func(platform string, test bool) bool
	TestKeys   bool // whether test keys are accepted; default: they get 401
	MaxWaiting int  // the size of places.Pools.Changed; default: as there
	MaxListing int  // that of places.Pools.Lists; default: as there
}

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	if c.StoreHigh == nil {
		c.StoreHigh = func() bool { return false }
	}
	if c.Proves == nil {
		c.Proves = func(string, bool) bool { return false }
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
	c.Store = cmp.Or(c.Store, places.NewWaiting(places.DefaultStoreWait, places.DefaultWaiting))
	c.MaxWaiting = cmp.Or(c.MaxWaiting, places.Pools.Changed.Size)
	c.MaxListing = cmp.Or(c.MaxListing, places.Pools.Lists.Size)
	return c
}

func (c Config) validate() error {
	for name, missing := range map[string]bool{
		"Keys": c.Keys == nil, "Signing": c.Signing == nil, "Sessions": c.Sessions == nil,
		"Reservations": c.Reservations == nil, "Usages": c.Usages == nil, "Lister": c.Lister == nil,
		"Changes": c.Changes == nil, "Rates": c.Rates == nil, "Quota": c.Quota == nil,
		"Callbacks": c.Callbacks == nil, "Listeners": c.Listeners == nil,
	} {
		if missing {
			return fmt.Errorf("api: %s is missing", name)
		}
	}
	if c.MaxWaiting < 0 {
		return fmt.Errorf("api: MaxWaiting is %d, it must be positive", c.MaxWaiting)
	}
	if c.MaxListing < 0 {
		return fmt.Errorf("api: MaxListing is %d, it must be positive", c.MaxListing)
	}
	return nil
}
