package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"verifyd/edge"
	"verifyd/edge/account"
	"verifyd/edge/dashboard/logins"
	"verifyd/edge/flow"
	"verifyd/edge/limit"
	"verifyd/edge/network"
	"verifyd/edge/page"
	"verifyd/natsconf/seal"
	"verifyd/sessions"
	"verifyd/sessions/pauses"
	"verifyd/sessions/roster"
)

// ReturnPath is where identity networks return to after a login to the dashboard: network.Options.ReturnPath of Config.Networks.
const ReturnPath = "/dashboard/login/{network}/callback"

const (
	// flowUse is the use of the box that attempts to log in are sealed in.
	flowUse    = "dashboard-flow"
	flowCookie = "verifyd_dashboard_flow_"
	// flowLife is how long somebody may take at the identity network.
	flowLife = 30 * time.Minute
)

// Directory knows the accounts that an identity is a member of, and the keys of an account; an *account.Mirror. It may be a moment
// behind the store.
type Directory interface {
	AccountsOf(network, subject string) []account.Account
	Keys(account string) []account.Key
	// For operators.
	Accounts(text, after string, most int) (found []account.Account, more bool)
	Name(account string) (string, bool)
}

// Preview draws the sign-in page as the users of an account see it: the question, or the page after the end.
type Preview func(w http.ResponseWriter, r *http.Request, a account.Account, ended bool)

// Fleet asks all processes of the service what they know. Its error is natsconf.ErrUnavailable.
type Fleet func(ctx context.Context) ([]roster.Process, error)

// Config is what a Handler needs.
type Config struct {
	BaseURL   string             // {base_url} of the contract, with its path prefix where it has one
	Networks  []*network.Network // made with ReturnPath, in the order of their buttons; none: login links and nothing else
	Allow     Allow              // who may make an account
	Accounts  *account.Store     //
	Directory Directory          //
	Logins    *logins.Store      //
	Sessions  *sessions.Store    //
	List      Lister             // of sessions
	Watch     *sessions.Watch    // tells open pages of changes
	Usage     Usages             //
	Callbacks Callbacks          // drafts callbacks and sends test ones
	Preview   Preview            // draws the sign-in page as an account's users see it
	Pauses    *pauses.Store      // of receiver hosts, by operators
	Fleet     Fleet              // asks the processes of the service
	Snippets  []Snippet          // how a callback is verified, in the order in which they are shown
	Rate      account.Rate       // of a key that has none of its own
	Policy    sessions.Policy    // of a key that has none of its own
	Quota     int64              // of an account that has none of its own; 1 or more
	TestKeys  bool               // whether test keys can be made
	Key       seal.Key           // the master key; attempts to log in are sealed with a key derived from it
	Log       zerolog.Logger     //
	Now       func() time.Time   // time.Now when nil
}

// Handler answers the routes of this package. It is safe for concurrent use and starts nothing.
type Handler struct {
	Config

	base    string // {base_url} without a slash at its end
	prefix  string // its path
	https   bool
	csrf    *http.CrossOriginProtection
	flows   flow.Cookies
	painter *painter
	tests   *limit.Rates  // of test callbacks, by account
	again   *limit.Rates  // of callbacks that are sent again, by account
	streams seats         // of the pages that are kept up to date
	look    time.Duration // see streamPause
}

// New checks the configuration and makes the handler. Errors name what is wrong and what would be right.
func New(c Config) (*Handler, error) {
	base, prefix, err := edge.ParseBaseURL(c.BaseURL)
	if err != nil {
		return nil, fmt.Errorf("base URL: %w", err)
	}
	if c.Accounts == nil || c.Directory == nil || c.Logins == nil || c.Sessions == nil || c.List == nil || c.Usage == nil || c.Watch == nil ||
		c.Pauses == nil || c.Fleet == nil {
		return nil, errors.New("dashboard: Accounts, Directory, Logins, Sessions, List, Usage, Watch, Pauses and Fleet are required")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	csrf, err := page.CrossOrigin(base)
	if err != nil {
		return nil, fmt.Errorf("base URL: %w", err)
	}
	h := &Handler{
		Config: c, base: base, prefix: prefix, https: strings.HasPrefix(base, "https:"), csrf: csrf,
		streams: seats{taken: map[string]int{}}, look: streamPause,
	}
	if h.tests, err = limit.NewRates(testRate); err != nil {
		return nil, err
	}
	if h.again, err = limit.NewRates(againRate); err != nil {
		return nil, err
	}
	if h.painter, err = newPainter(); err != nil {
		return nil, err
	}
	h.flows = flow.NewCookies(flow.Config{
		Box: c.Key.Box(flowUse), Name: flowCookie, Path: prefix + pathLogin, Secure: h.https, Now: c.Now,
	})
	return h, nil
}

// network gives the network of an id, or nil.
func (h *Handler) network(id string) *network.Network {
	i := slices.IndexFunc(h.Networks, func(n *network.Network) bool { return n.ID() == id })
	if i < 0 {
		return nil
	}
	return h.Networks[i]
}

// networkName gives what people call a network; its id where it is no longer configured.
func (h *Handler) networkName(id string) string {
	if n := h.network(id); n != nil {
		return n.Name()
	}
	return id
}

// within bounds what one request may wait for the store.
func within(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.Context(), storeTimeout)
}

const storeTimeout = 10 * time.Second
