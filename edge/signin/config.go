// Package signin is the end user's side: the sign-in page, and the round trip to an identity network and
// back.
//
// The route table, relative to {base_url}, which may carry a path prefix that every link, redirect and cookie
// keeps:
//
//	GET, HEAD /?session=…                draws the page of a session, in the language of lang=… or of the
//	                                     browser; a GET of a pending one sets the browser's cookie
//	GET, HEAD /?session=…&lang=          the list of languages, each with a link back to the page; from=…
//	                                     is the language of that page. The store is not asked
//	POST      /signin                    continue: 303 to the network; decline, stop: 303 to the clean page
//	GET, POST /signin/{network}/callback the network's return: judged once, then 303 to the clean page
//	GET       /assets/<name>-<hash>…     the style sheet and the icon, immutable
//	GET       /branding/…                an account's colours and logo (package edge/branding)
//
// What the page shows, by the session's facts:
//
//	pending                    200  "Is this you?", a button per network, a notice after a failed attempt
//	verified, failed, canceled 200  the session's outcome
//	pending, another browser's 409  it is signing in there; two minutes after its last press anybody may
//	pending, a code is awaited 200  the code, in the browser that signed in; 409 in any other
//	pending, without a network 410  the service has none for sessions of its kind, live or test
//	expired                    410
//	the account is disabled    403  while it is pending; it continues if the account is enabled in time
//	unknown                    404
//	no session in the address  404  what the service is; so is any wrong path (Nowhere)
//	JetStream away             503  with Retry-After; nothing is lost by trying again
//	a press without a cookie   400  the browser keeps none, which the page's own would have shown
//	another site's press       403
//	a form that no page has    400  or 413, 415
//	a return without a cookie  400  or to another browser than the one that began
//	too many presses, returns  429  with Retry-After, by address and by session; the store is not asked
//	link previews, crawlers    200  one card for all links, known or not; the store is not asked
//
// The law:
//
//  1. GET / decides nothing. Chat applications open links to draw previews; a person's press on a button is a
//     POST, and a POST that another site caused is refused, since it would skip the question "Is this you?".
//  2. An attempt belongs to the browser that began it: a cookie sealed with the master key, found by the
//     state parameter, with the hash of the cookie by which the browser is known. A return to the browser
//     that began, for a pending session whose turn it is, spends the attempt (store.Store.Redeem) before its
//     code is looked at, whatever it holds and on whatever machine it arrives; so a code is never posted
//     twice. Any other return leaves the attempt whole. One that belongs to no attempt of its browser spends
//     the code that came with it (flow.Codes), and does nothing else: nobody gains anything from the address
//     that this browser came back with.
//  3. Three ends are verdicts and complete the session: the provider vouched and the network's rules accept,
//     the user declined, the rules refused. Everything else is no verdict: the page explains what happened
//     and offers another attempt. A test session is offered, and ended by, the network of test sessions
//     alone; a live session by the others.
//  4. What the page shows is read from the session's facts, never from an address. A note in the address only
//     chooses a notice on the page of a session that is still pending.
//  5. No log line, error text or record contains tokens, codes, states or identities. An identity is compared
//     and dropped.
//  6. Every value that somebody else typed is escaped, isolated in its direction, and its invisible
//     characters are made visible.
//  7. One browser signs in at a time (store.Store.AcquireLease). That spares people failed attempts and
//     decides nothing: the one completion does.
//  8. The only foreign address that a page links to is the account's own return URL, after the end.
//
// Texts for users are in texts/, apart from the code, one file for each language; agents.go knows
// User-Agents.
package signin

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"verifyd/edge/account/branding"
	looks "verifyd/edge/branding"
	"verifyd/edge/flow"
	"verifyd/edge/limit"
	"verifyd/edge/network"
	"verifyd/edge/page"
	"verifyd/edge/page/drawn"
	"verifyd/edge/places"
	"verifyd/edge/web"
	"verifyd/natsconf/secretbox"
	"verifyd/sessions/store"
)

const (
	// flowUse is the use of the box that flows are sealed in.
	flowUse    = "flow"
	flowCookie = "verifyd_flow_"
	// maxFlows is how many attempts one browser may have open: enough for a person with many tabs, and about
	// 5 KB of header.
	maxFlows = 8
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
	Store    *places.Waiting       // how requests wait for the store; as by limit's defaults when nil
	Attempts *limit.Attempts       // bounds them; those of limit.DefaultSignIns, not measured, when nil
	Key      secretbox.Master      // the master key; flow cookies are sealed with a key derived from it
	Log      zerolog.Logger        //
	Metrics  prometheus.Registerer // none when nil
	Now      func() time.Time      // time.Now when nil
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
	c.Store = cmp.Or(c.Store, places.NewWaiting(places.DefaultStoreWait, places.DefaultWaiting))
	csrf, err := page.NewCrossOrigin(base)
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
		codes: flow.Codes{
			Store: c.Sessions, Attempts: c.Attempts, Trip: limit.TripSignIn, Within: c.Store.Within(),
			Now: c.Now, Log: c.Log,
		},
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

// Routes returns the route table, for api.Config. HEAD comes with GET, but for the return: a HEAD there
// would spend the attempt and show nobody the end of it.
func (h *Handler) Routes() []web.Route {
	routes := []web.Route{
		{Method: http.MethodGet, Path: pathPage, Name: "sign_in_page",
			Handler: page.Guard(h.answers(h.show))},
		{Method: http.MethodPost, Path: pathSignin, Name: "sign_in_start",
			Handler: page.Guard(h.answers(h.start))},
		{Method: http.MethodGet, Path: pathReturn, Name: "sign_in_return",
			Handler: page.Guard(h.answers(h.finish))},
		{Method: http.MethodPost, Path: pathReturn, Name: "sign_in_return",
			Handler: page.Guard(h.answers(h.finish))},
		{Method: http.MethodHead, Path: pathReturn, Name: "sign_in_return",
			Handler: page.Guard(refuseHead)},
	}
	for _, a := range h.assets.all() {
		routes = append(routes, web.Route{
			Method: http.MethodGet, Path: pathAssets + a.Name, Name: "sign_in_asset", Handler: a,
		})
	}
	return append(routes, looks.Routes(func(account string) (branding.Branding, bool) {
		a, ok := h.accounts.Requester(account)
		return a.Branding, ok
	})...)
}

func refuseHead(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Allow", http.MethodGet)
	w.WriteHeader(http.StatusMethodNotAllowed)
}
