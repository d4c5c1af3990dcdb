package signin

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"verifyd/edge/flow"
	"verifyd/edge/limit"
	"verifyd/edge/network"
	"verifyd/edge/page"
	"verifyd/edge/page/drawn"
	"verifyd/edge/web"
	"verifyd/natsconf/secretbox"
	"verifyd/sessions"
	"verifyd/sessions/proof"
	"verifyd/sessions/store"
)

// Accounts reports how end users know an integrator's account.
type Accounts interface {
	Requester(account string) (a Requester, ok bool)
}

const (
	// flowUse is the use of the box that flows are sealed in.
	flowUse    = "flow"
	flowCookie = "verifyd_flow_"
	// maxFlows is how many attempts one browser may have open: enough for a person with many tabs, and about
	// 5 KB of header.
	maxFlows = 8
	// lateReturn is how much longer than the session a cookie lives, so that who comes back too late learns
	// that the link has expired rather than that cookies are missing. An expired session completes never, so
	// the cookie is worth nothing by then.
	lateReturn = 10 * time.Minute
)

// Config is what a Handler needs.
type Config struct {
	BaseURL  string       // {base_url} of the contract, with its path prefix where it has one
	Sessions *store.Store //
	// of live sessions, in the order of their buttons; each with its own id. Those that prove platform
	// accounts alone have no button
	Networks []*network.Network
	// Test is the one network of sessions that a test key started; nil: there are none. If Networks has it
	// too, it is one of live sessions as well, which is the operator's explicit choice.
	Test     *network.Network
	Accounts Accounts              //
	Store    *limit.Waiting        // how requests wait for the store; as by limit's defaults when nil
	Attempts *limit.Attempts       // bounds them; those of limit.DefaultSignIns, not measured, when nil
	Key      secretbox.Key         // the master key; flow cookies are sealed with a key derived from it
	Log      zerolog.Logger        //
	Metrics  prometheus.Registerer // none when nil
	Now      func() time.Time      // time.Now when nil
}

// Handler answers the routes of this package. It is safe for concurrent use and starts nothing.
type Handler struct {
	*pages
	*stepLog
	*verdicts

	sessions *store.Store
	attempts *limit.Attempts
	log      zerolog.Logger
	cookies  flow.Cookies
	csrf     *http.CrossOriginProtection
	judge    *judge
	// judgeWithin bounds the way to a verdict: to spend the attempt and to ask the provider.
	judgeWithin time.Duration
}

// New checks the configuration and makes the handler. Errors name what is wrong and what would be right.
func New(c Config) (*Handler, error) {
	base, prefix, err := web.ParseBaseURL(c.BaseURL)
	if err != nil {
		return nil, fmt.Errorf("base URL: %w", err)
	}
	if err := checkNetworks(c.Networks, c.Test); err != nil {
		return nil, err
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Attempts == nil {
		if c.Attempts, err = limit.NewAttempts(limit.DefaultSignIns, nil); err != nil {
			return nil, err
		}
	}
	c.Store = cmp.Or(c.Store, limit.NewWaiting(limit.DefaultStoreWait, limit.DefaultWaiting))
	csrf, err := page.CrossOrigin(base)
	if err != nil {
		return nil, fmt.Errorf("base URL: %w", err)
	}
	made, err := loadMaterial()
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(c.Metrics)
	if err != nil {
		return nil, err
	}
	nets := networks{live: identities(c.Networks), known: c.Networks}
	if c.Test != nil {
		nets.test = []*network.Network{c.Test}
	}
	h := &Handler{
		pages: &pages{
			networks: nets, material: made, accounts: c.Accounts, log: c.Log, now: c.Now, store: c.Store,
			origin: strings.TrimSuffix(base, prefix), prefix: prefix,
			https: strings.HasPrefix(base, "https:"), drawn: drawn.New[drawing](maxKept),
		},
		stepLog:  &stepLog{sessions: c.Sessions, metrics: m, log: c.Log},
		verdicts: &verdicts{sessions: c.Sessions, log: c.Log, completeWithin: c.Store.Within()},
		judge:    &judge{networks: nets, accounts: c.Accounts, sessions: c.Sessions, log: c.Log, now: c.Now},
		sessions: c.Sessions, attempts: c.Attempts, log: c.Log, csrf: csrf,
		judgeWithin: answerWithin - c.Store.Within(),
	}
	cookies := page.Cookies{HTTPS: h.https, Prefix: prefix}
	h.cookies = flow.NewCookies(flow.Config{
		Cookies: cookies, Box: c.Key.Box(flowUse), Name: flowCookie, Path: pathSignin, Max: maxFlows,
		Now: c.Now,
	})
	h.browsers = flow.Browsers{Cookies: cookies, Name: browserCookie, Path: pathPage, Life: browserTime}
	return h, nil
}

// networks are the identity networks, by what they are for.
type networks struct {
	live  []*network.Network // of live sessions, that say who somebody is
	known []*network.Network // of live sessions, those that prove platform accounts alone included
	test  []*network.Network // of test sessions: one or none
}

func checkNetworks(ns []*network.Network, test *network.Network) error {
	if len(identities(ns)) == 0 {
		return errors.New("identity networks: at least one is needed that is not platform_only, or nobody " +
			"can sign in")
	}
	seen := map[string]*network.Network{}
	for _, n := range ns {
		if seen[n.ID()] != nil {
			return fmt.Errorf("identity networks: the id %q is there twice; give each network its own",
				n.ID())
		}
		seen[n.ID()] = n
	}
	if test != nil && seen[test.ID()] != nil && seen[test.ID()] != test {
		return fmt.Errorf("identity networks: the id %q is that of the network of test sessions; give "+
			"this one another", test.ID())
	}
	return nil
}

// identities returns the networks that say who somebody is, and not only that a platform account is theirs.
func identities(ns []*network.Network) []*network.Network {
	return slices.DeleteFunc(slices.Clone(ns), (*network.Network).PlatformOnly)
}

// networksOf returns the networks by which a session may be completed. A test session never ends by a real
// network, nor a live one by that of test sessions, unless the operator has made it one of both.
func (ns networks) networksOf(test bool) []*network.Network {
	if test {
		return ns.test
	}
	return ns.live
}

// network returns the network of an id among those of a session, or nil.
func (ns networks) network(id string, test bool) *network.Network {
	for _, n := range ns.networksOf(test) {
		if n.ID() == id {
			return n
		}
	}
	return nil
}

// Proves reports whether a network vouches for the accounts of a platform, for live sessions or for test
// ones.
func (ns networks) Proves(platform string, test bool) bool { return ns.prover(platform, test) != nil }

// prover returns the network that vouches for a platform's accounts: the first one that answers, or else the
// first; nil: there is none.
func (ns networks) prover(platform string, test bool) (found *network.Network) {
	for _, n := range ns.knownOf(test) {
		switch {
		case !n.Proves(platform):
		case n.Available() == nil:
			return n
		case found == nil:
			found = n
		}
	}
	return found
}

// knownOf returns all networks that take part in sessions, those that prove platform accounts alone included.
func (ns networks) knownOf(test bool) []*network.Network {
	if test {
		return ns.test
	}
	return ns.known
}

// next returns the network to which a press on the button of another leads, and whether it is to prove the
// platform account alone; nil: there is no such button.
func (ns networks) next(s sessions.Session, button string, progress proof.Progress,
	browser string) (n *network.Network, platform bool) {
	n = ns.network(button, s.Test)
	if n == nil || !ns.comesSecond(s, n, progress, browser) {
		return n, false
	}
	return ns.prover(s.Platform, s.Test), true
}

// comesSecond reports whether a browser is to prove the platform account elsewhere before it signs in with a
// network.
func (networks) comesSecond(s sessions.Session, n *network.Network, progress proof.Progress,
	browser string) bool {
	return s.Level == proof.Account && !n.Proves(s.Platform) && !progress.PlatformIn(browser)
}

// networkOf returns the network of an attempt, or nil.
func (ns networks) networkOf(f flow.Flow, s sessions.Session) *network.Network {
	if !f.Platform {
		return ns.network(f.Network, s.Test)
	}
	for _, n := range ns.knownOf(s.Test) {
		if n.ID() == f.Network && n.Proves(s.Platform) {
			return n
		}
	}
	return nil
}
