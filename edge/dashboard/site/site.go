package site

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/dashboard/logins"
	"verifyd/edge/limit"
	"verifyd/edge/network"
	"verifyd/edge/page"
	"verifyd/edge/places"
	"verifyd/edge/web"
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

// Config is what a Site needs. All of it is required but SignIn and Store.
type Config struct {
	BaseURL  string             // {base_url} of the contract, with its path prefix where it has one
	Networks []*network.Network // by which people log in
	SignIn   []*network.Network // those with which users sign in, for their names
	Accounts *accountstore.Store
	Members  Directory
	Logins   *logins.Store
	Notices  Notices
	Store    *places.Waiting // how pages wait for the store; as by limit's defaults when nil
	Log      zerolog.Logger
	Now      func() time.Time
	Parts    []Part
}

// Site is the shared dependencies of all pages. It is safe for concurrent use and starts nothing.
type Site struct {
	Config
	slots
	storeWait

	Base    string // {base_url} without a slash at its end
	Prefix  string // its path
	HTTPS   bool
	Cookies page.Cookies

	csrf      *page.CrossOrigin
	templates *templates
	flashes   map[FlashCode]Flash
	rates     rates
	uploads   *places.Places
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
	c.Store = cmp.Or(c.Store, places.NewWaiting(places.DefaultStoreWait, places.DefaultWaiting))
	s := &Site{
		Config: c, Base: base, Prefix: prefix, HTTPS: strings.HasPrefix(base, "https:"),
		uploads: places.New(places.Pools.Uploads), storeWait: storeWait{c.Store},
		slots: slots{places.New(places.Pools.PageLists), places.New(places.Pools.OperatorLists)},
	}
	if s.rates, err = newRates(); err != nil {
		return nil, err
	}
	if s.csrf, err = page.NewCrossOrigin(base); err != nil {
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

// storeWait is how pages wait for the store.
type storeWait struct{ store *places.Waiting }

// Within returns the context under which a page reads and writes the store. If too many wait for the store,
// it has ended: the page says that the store cannot be reached.
func (s storeWait) Within(r *http.Request) (context.Context, context.CancelFunc) {
	ctx, done, err := s.store.Begin(r.Context(), places.Request{
		Of: limit.SiteOf(web.EventFrom(r.Context()).ClientIP), Must: r.Method == http.MethodPost,
	})
	if err != nil {
		ended, cancel := context.WithCancelCause(r.Context())
		cancel(err)
		return ended, func() {}
	}
	return ctx, sync.OnceFunc(done)
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

// Part is one package's share of the dashboard.
type Part struct {
	Files     fs.FS // has web/NAME.html for each page
	Pages     []string
	Functions template.FuncMap // that its templates may call in addition to those of all pages
	Flashes   map[FlashCode]Flash
}
