package dashboard

import (
	"net/http"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"verifyd/edge/account"
	"verifyd/edge/account/accountstore"
	"verifyd/edge/account/notice"
	"verifyd/edge/account/signing"
	"verifyd/edge/dashboard/callbacks"
	"verifyd/edge/dashboard/callbacks/kept"
	"verifyd/edge/dashboard/integrator"
	"verifyd/edge/dashboard/login"
	"verifyd/edge/dashboard/logins"
	"verifyd/edge/dashboard/notices"
	"verifyd/edge/dashboard/operator"
	"verifyd/edge/dashboard/signinpage"
	"verifyd/edge/dashboard/site"
	"verifyd/edge/limit"
	"verifyd/edge/network"
	"verifyd/edge/page"
	"verifyd/edge/places"
	"verifyd/edge/web"
	"verifyd/natsconf/secretbox"
	"verifyd/sessions"
	"verifyd/sessions/pauses"
	"verifyd/sessions/store"
	"verifyd/sessions/urlpolicy"
)

// Directory holds accounts and their keys; a *keymirror.Mirror. It may be a moment behind the store.
type Directory interface {
	site.Directory
	integrator.Directory
	operator.Directory
}

// Config is what a Handler needs.
type Config struct {
	BaseURL string // {base_url} of the contract, with its path prefix where it has one
	// bounds attempts to log in; nil means those of limit.DefaultSignIns, without metrics
	Attempts *limit.Attempts
	// made with login.ReturnPath, in the order of their buttons; none: login links and nothing else
	Networks  []*network.Network
	SignIn    []*network.Network // those with which users sign in, for their names
	Allow     logins.Allow       // who may make an account
	Accounts  *accountstore.Store
	Directory Directory
	Logins    *logins.Store
	Sessions  *store.Store
	List      integrator.Lister // of sessions
	Watch     *store.Watch      // reports changes to open pages
	Poll      time.Duration     // see integrator.Config
	Usage     integrator.Usages
	Callbacks callbacks.Sender     // drafts callbacks and sends test ones
	Kept      *kept.Store          // what the pages about callbacks remember
	Preview   signinpage.Config    // draws the sign-in page as an account's users see it
	Pauses    *pauses.Store        // of receiver hosts, by operators
	Fleet     operator.Fleet       // asks the processes of the service
	Snippets  []integrator.Snippet // how a callback is verified, in the order in which they are shown
	Rate      account.Rate         // for keys without one of their own
	Policy    sessions.Policy      // for keys without one of their own
	Quota     int64                // for accounts without one of their own; at least 1
	TestKeys  bool                 // whether test keys can be made
	Key       secretbox.Master     // the master key: seals attempts to log in, derives accounts' key pairs
	Notices   *notice.Store        // the notices to accounts
	Addresses *urlpolicy.Policy    // which addresses notices may be posted to
	Store     *places.Waiting      // how pages wait for the store; as by limit's defaults when nil
	Log       zerolog.Logger
	Now       func() time.Time // time.Now when nil
}

// Handler answers the routes of this package. It is safe for concurrent use and starts nothing.
type Handler struct {
	site   *site.Site
	routes []web.Route
}

// New checks the configuration and returns the handler. Errors name what is wrong and what would be valid.
func New(c Config) (*Handler, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	s, err := site.New(site.Config{
		BaseURL: c.BaseURL, Networks: c.Networks, SignIn: c.SignIn, Accounts: c.Accounts,
		Members: c.Directory, Logins: c.Logins, Notices: c.Notices, Store: c.Store, Log: c.Log,
		Now: c.Now,
		Parts: []site.Part{
			login.Part(), integrator.Part(), callbacks.Part(), signinpage.Part(), notices.Part(),
			operator.Part(),
		},
	})
	if err != nil {
		return nil, err
	}
	in, err := login.New(s, login.Config{
		Attempts: c.Attempts, Allow: c.Allow, Sessions: c.Sessions, Key: c.Key,
	})
	if err != nil {
		return nil, err
	}
	pages, err := integrator.New(s, integrator.Config{
		Allow: c.Allow, Directory: c.Directory, Sessions: c.Sessions, List: c.List, Watch: c.Watch,
		Poll: c.Poll, Usage: c.Usage,
		Callbacks: c.Callbacks, Pauses: c.Pauses, Snippets: c.Snippets, Rate: c.Rate,
		Policy: c.Policy,
		Quota:  c.Quota, TestKeys: c.TestKeys, Signing: signing.New(c.Key),
	})
	if err != nil {
		return nil, err
	}
	sent, err := callbacks.New(s, callbacks.Config{
		Sessions: c.Sessions, Kept: c.Kept, Sender: c.Callbacks, Signing: signing.New(c.Key),
	})
	if err != nil {
		return nil, err
	}
	signInPage, err := signinpage.New(s, c.Preview)
	if err != nil {
		return nil, err
	}
	operators, err := operator.New(s, operator.Config{
		Directory: c.Directory, Sessions: c.Sessions, Pauses: c.Pauses, Fleet: c.Fleet, Quota: c.Quota,
	})
	if err != nil {
		return nil, err
	}
	noticePages, err := notices.New(s, c.Notices, c.Addresses)
	if err != nil {
		return nil, err
	}
	return &Handler{s, slices.Concat(in.Routes(), pages.Routes(), sent.Routes(), signInPage.Routes(),
		noticePages.Routes(), operators.Routes(), s.Routes())}, nil
}

// Routes returns the route table, for api.Config.
func (h *Handler) Routes() []web.Route { return h.routes }

// Nowhere answers a browser whose address below the dashboard or the documents leads to no page, with the
// status of what it asked for: to somebody who is logged in within their account's frame.
func (h *Handler) Nowhere(w http.ResponseWriter, r *http.Request, status int) {
	page.Guard(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := h.site.Within(r)
		defer cancel()
		var visit *site.Visit
		if v, err := h.site.Authorize(ctx, r); err == nil {
			visit = &v
		}
		h.site.DrawProblem(w, visit, site.ProblemNowhere.With(status))
	}).ServeHTTP(w, r)
}
