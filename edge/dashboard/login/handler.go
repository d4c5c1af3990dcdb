// Package login is how people log in to the dashboard: by an identity network, an operator's login link or an
// invite. It is also how they make an account, switch to another, and log out.
package login

import (
	"embed"
	"errors"
	"slices"
	"time"

	"verifyd/edge/dashboard/logins"
	"verifyd/edge/dashboard/paths"
	"verifyd/edge/dashboard/site"
	"verifyd/edge/flow"
	"verifyd/edge/limit"
	"verifyd/edge/network"
	"verifyd/natsconf/secretbox"
	"verifyd/sessions/store"
)

// ReturnPath is where identity networks return to after a login to the dashboard: network.Options.ReturnPath
// of site.Config.Networks.
const ReturnPath = "/dashboard/login/{network}/callback"

// The paths that no other package links to.
const (
	pathLink    = "/dashboard/link"
	pathAccount = "/dashboard/account"
	pathLogout  = "/dashboard/logout"

	pathLogins   = "/dashboard/logins"
	pathEndLogin = "/dashboard/logins/end"
)

const (
	// flowUse is the use of the box that attempts to log in are sealed in.
	flowUse = "dashboard-flow"
	// flowCookie differs from the cookie of builds that did not bind attempts to a browser: neither accepts
	// the other's.
	flowCookie    = "verifyd_login_flow_"
	browserCookie = "verifyd_login_browser"
	// browserUse distinguishes the hash of a browser that logs in from those of the sign-in page's.
	browserUse = "dashboard"
	// flowLife is how long a user may take at the identity network.
	flowLife = 30 * time.Minute
	// maxFlows is how many attempts to log in one browser may have open. Together with those of the sign-in
	// page, which are sent too if the base URL has no path, they stay below the limit of 16 KiB for a
	// request's header.
	maxFlows = 3
)

//go:embed web
var webFiles embed.FS

// Part is what site.New needs of this package.
func Part() site.Part {
	return site.Part{
		Files: webFiles, Pages: []string{"login", "link", "invite", "newaccount", "logins", "signinagain"},
		Flashes: flashes,
	}
}

// Config is what a Handler needs in addition to the site.
type Config struct {
	// bounds attempts to log in; nil means those of limit.DefaultSignIns, without metrics
	Attempts *limit.Attempts
	Allow    logins.Allow     // who may make an account
	Sessions *store.Store     // remembers which attempts are redeemed
	Key      secretbox.Master // the master key; attempts to log in are sealed with a key derived from it
}

// Handler answers the routes of this package. It is safe for concurrent use and starts nothing.
type Handler struct {
	*site.Site
	Config

	flows    flow.Cookies
	codes    flow.Codes
	browsers flow.Browsers
}

// New returns the handler.
func New(s *site.Site, c Config) (*Handler, error) {
	if c.Sessions == nil {
		return nil, errors.New("dashboard: Sessions is required")
	}
	if c.Attempts == nil {
		var err error
		if c.Attempts, err = limit.NewAttempts(limit.DefaultSignIns, nil); err != nil {
			return nil, err
		}
	}
	return &Handler{
		Site: s, Config: c,
		flows: flow.NewCookies(flow.Config{
			Cookies: s.Cookies, Box: c.Key.Box(flowUse), Name: flowCookie, Path: paths.Login,
			Max: maxFlows, Now: s.Now,
		}),
		browsers: flow.Browsers{
			Cookies: s.Cookies, Name: browserCookie, Path: paths.Login, Life: flowLife,
		},
		codes: flow.Codes{
			Store: c.Sessions, Attempts: c.Attempts, Trip: limit.TripDashboard, Within: finishWithin,
			Now: s.Now, Log: s.Log,
		},
	}, nil
}

// network returns the network of an id, or nil.
func (h *Handler) network(id string) *network.Network {
	i := slices.IndexFunc(h.Networks, func(n *network.Network) bool { return n.ID() == id })
	if i < 0 {
		return nil
	}
	return h.Networks[i]
}
