package signin

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"verifyd/edge"
	"verifyd/edge/network"
	"verifyd/natsconf/seal"
	"verifyd/sessions"
)

// Accounts tells the name under which end users know an integrator's account.
type Accounts interface {
	Name(id string) (name string, ok bool)
}

// Config is what a Handler needs.
type Config struct {
	BaseURL  string             // {base_url} of the contract, with its path prefix where it has one
	Sessions *sessions.Store    //
	Networks []*network.Network // in the order of their buttons; at least one, each with its own id
	Accounts Accounts           //
	Key      seal.Key           // the master key; flow cookies are sealed with a key derived from it
	Log      zerolog.Logger     //
	Now      func() time.Time   // time.Now when nil
}

// Handler answers the routes of this package. It is safe for concurrent use and starts nothing.
type Handler struct {
	sessions *sessions.Store
	networks []*network.Network
	accounts Accounts
	log      zerolog.Logger
	now      func() time.Time

	prefix  string // the base URL's path, without a slash at its end
	https   bool
	cookies cookies
	csrf    *http.CrossOriginProtection
	assets  assets
	painter *painter

	completeWithin time.Duration // for one verdict
}

// New checks the configuration and makes the handler. Errors name what is wrong and what would be right.
func New(c Config) (*Handler, error) {
	base, prefix, err := edge.ParseBaseURL(c.BaseURL)
	if err != nil {
		return nil, fmt.Errorf("base URL: %w", err)
	}
	if err := checkNetworks(c.Networks); err != nil {
		return nil, err
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	csrf := http.NewCrossOriginProtection()
	// Where a proxy rewrites Host, a browser that does not send Sec-Fetch-Site can only be judged by the origin users see.
	if err := csrf.AddTrustedOrigin(origin(base)); err != nil {
		return nil, fmt.Errorf("base URL: %w", err)
	}
	files, err := loadAssets()
	if err != nil {
		return nil, err
	}
	p, err := newPainter()
	if err != nil {
		return nil, err
	}
	h := &Handler{
		sessions: c.Sessions, networks: c.Networks, accounts: c.Accounts, log: c.Log, now: c.Now,
		prefix: prefix, https: strings.HasPrefix(base, "https:"), csrf: csrf, assets: files, painter: p,
		completeWithin: completeWithin,
	}
	h.cookies = newCookies(c.Key, h.prefix+pathSignin, h.https, c.Now)
	return h, nil
}

// origin gives a checked base URL's origin as browsers write it: lower case, without the scheme's own port (RFC 6454 §6.2).
func origin(base string) string {
	u, err := url.Parse(base)
	if err != nil {
		return base // ParseBaseURL took it
	}
	host := u.Host
	if port := u.Port(); port == "443" && u.Scheme == "https" || port == "80" && u.Scheme == "http" {
		host = strings.TrimSuffix(host, ":"+port)
	}
	return u.Scheme + "://" + strings.ToLower(host)
}

func checkNetworks(ns []*network.Network) error {
	if len(ns) == 0 {
		return errors.New("identity networks: at least one is needed, or nobody can sign in")
	}
	seen := map[string]bool{}
	for _, n := range ns {
		if seen[n.ID()] {
			return fmt.Errorf("identity networks: the id %q is there twice; give each network its own", n.ID())
		}
		seen[n.ID()] = true
	}
	return nil
}

// network gives the network of an id, or nil.
func (h *Handler) network(id string) *network.Network {
	for _, n := range h.networks {
		if n.ID() == id {
			return n
		}
	}
	return nil
}
