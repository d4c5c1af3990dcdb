package site

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/dashboard/logins"
	"verifyd/edge/limit"
	"verifyd/edge/network"
	"verifyd/edge/page"
	"verifyd/edge/web"
	"verifyd/natsconf/wait"
)

// Directory holds the accounts that an identity is a member of; a *keymirror.Mirror. It may be a moment
// behind the store.
type Directory interface {
	AccountsOf(network, subject string) []account.Account
}

// Notices counts what members have not read; a *notice.Store.
type Notices interface {
	Unread(ctx context.Context, account string, who access.Actor) (int, error)
}

// Config is what a Site needs. All of it is required but SignIn.
type Config struct {
	BaseURL  string             // {base_url} of the contract, with its path prefix where it has one
	Networks []*network.Network // by which people log in
	SignIn   []*network.Network // those with which users sign in, for their names
	Accounts *accountstore.Store
	Members  Directory
	Logins   *logins.Store
	Notices  Notices
	Log      zerolog.Logger
	Now      func() time.Time
	Parts    []Part
}

// Site is the shared dependencies of all pages. It is safe for concurrent use and starts nothing.
type Site struct {
	Config

	Base    string // {base_url} without a slash at its end
	Prefix  string // its path
	HTTPS   bool
	Cookies page.Cookies

	csrf      *http.CrossOriginProtection
	templates *templates
	flashes   map[FlashCode]Flash
	lists     *limit.Places // of the pages that search the store
}

// New checks the configuration and the templates of all parts.
func New(c Config) (*Site, error) {
	base, prefix, err := web.ParseBaseURL(c.BaseURL)
	if err != nil {
		return nil, fmt.Errorf("base URL: %w", err)
	}
	if c.Accounts == nil || c.Members == nil || c.Logins == nil || c.Notices == nil || c.Now == nil {
		return nil, errors.New("dashboard: Accounts, Members, Logins, Notices and Now are required")
	}
	s := &Site{
		Config: c, Base: base, Prefix: prefix, HTTPS: strings.HasPrefix(base, "https:"),
		lists: limit.NewPlaces(maxLists),
	}
	if s.csrf, err = page.CrossOrigin(base); err != nil {
		return nil, fmt.Errorf("base URL: %w", err)
	}
	if s.templates, err = loadTemplates(c.Parts); err != nil {
		return nil, err
	}
	s.Cookies = page.Cookies{HTTPS: s.HTTPS, Prefix: prefix}
	s.flashes = allFlashes(c.Parts)
	return s, nil
}

// NetworkName returns the display name of a network; its id if it is no longer configured.
func (s *Site) NetworkName(id string) string {
	for _, n := range slices.Concat(s.Networks, s.SignIn) {
		if n.ID() == id {
			return n.Name()
		}
	}
	return id
}

// Within bounds how long a request may wait for the store.
func Within(r *http.Request) (context.Context, context.CancelFunc) {
	return wait.For(r.Context(), limit.DefaultStoreWait)
}

// pathAssets is the prefix of the assets' paths.
const pathAssets = "/assets/"

// Routes are those of the assets.
func (s *Site) Routes() []web.Route {
	var routes []web.Route
	for _, a := range s.templates.assets() {
		routes = append(routes, web.Route{
			Method: http.MethodGet, Path: pathAssets + a.Name, Name: "dashboard_asset", Handler: a,
		})
	}
	return routes
}
