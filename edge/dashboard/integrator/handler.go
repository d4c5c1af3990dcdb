// Package integrator serves an account's pages of the dashboard:
//
//	keys                             API keys: list, create (shown once), roll, revoke
//	sessions, sessions/{session}     what happened, to which callbacks; live
//	signing                          the callback signing secret, its rotation, snippets
//	usage, quickstart                this month's sessions; the first steps with the account's own key
//	members, audit, settings         who may do what, who did what, and the login itself
//
// There is one type for each subject, and each has the shared dependencies.
package integrator

import (
	"embed"
	"errors"
	"html/template"
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/signing"
	"verifyd/edge/dashboard/callbacks"
	"verifyd/edge/dashboard/logins"
	"verifyd/edge/dashboard/site"
	"verifyd/edge/export"
	"verifyd/edge/places"
	"verifyd/sessions"
	"verifyd/sessions/pauses"
	"verifyd/sessions/store"
)

//go:embed web
var webFiles embed.FS

// Part is what site.New needs of this package.
func Part() site.Part {
	return site.Part{
		Files: webFiles, Pages: []string{
			"keys", "newkey", "roll", "revoke", "sessions", "session", "signing", "usage",
			"quickstart", "members", "remove",
			"audit", "settings", "deleteaccount",
		},
		Functions: template.FuncMap{
			"startCommand": startCommand, "listenCommand": listenCommand, "tryCommand": tryCommand,
		}, Flashes: flashes,
	}
}

// Directory holds the keys of an account; a *keymirror.Mirror. It may be a moment behind the store.
type Directory interface {
	Keys(account string) []account.Key
}

// Snippet is how a callback is verified in one language.
type Snippet struct{ ID, Language, File, Text string }

// Config is what a Handler needs in addition to the site. Directory, Sessions, List, Usage, Watch, Pauses and
// Signing are required.
type Config struct {
	Allow     logins.Allow // who may make an account
	Directory Directory
	Sessions  *store.Store
	List      Lister       // of sessions
	Watch     *store.Watch // reports changes to open pages
	// interval between reads of an open page's session without a change; 10 s when zero
	Poll      time.Duration
	Usage     Usages
	Callbacks callbacks.Sender // drafts callbacks
	Signing   *signing.Keys    // derives the key pairs of accounts
	Pauses    *pauses.Store    // of receiver hosts, by operators
	Snippets  []Snippet        // how a callback is verified, in the order in which they are shown
	Rate      account.Rate     // for keys without one of their own
	Policy    sessions.Policy  // for keys without one of their own
	Quota     int64            // for accounts without one of their own; at least 1
	TestKeys  bool             // whether test keys can be made
}

// deps is the shared dependencies of the pages.
type deps struct {
	*site.Site
	Config
}

// Handler answers the routes of this package. It is safe for concurrent use and starts nothing.
type Handler struct {
	deps

	sessions sessionPages
	signing  signingPages
}

// New returns the handler.
func New(s *site.Site, c Config) (*Handler, error) {
	if c.Directory == nil || c.Sessions == nil || c.List == nil || c.Usage == nil || c.Watch == nil ||
		c.Pauses == nil || c.Signing == nil {
		return nil, errors.New("dashboard: Directory, Sessions, List, Usage, Watch, Pauses and Signing are " +
			"required")
	}
	if c.Poll == 0 {
		c.Poll = streamPause
	}
	d := deps{s, c}
	return &Handler{
		d, sessionPages{d, places.New(places.Pools.LivePages), export.NewAnswers()}, signingPages{d},
	}, nil
}

// The address of the quickstart's receiver, on a developer's machine.
const localReceiver = "http://localhost:3000/hook"

// listenCommand brings the callbacks of a test key's sessions to a developer's own machine; it reads the key
// from VERIFYD_API_KEY.
func listenCommand(base string) string {
	return "verifyd listen --base-url " + base + " --forward " + localReceiver
}

// tryCommand checks a receiver on a developer's own machine; it reads the secret from VERIFYD_TRY_SECRET.
func tryCommand() string { return "verifyd try " + localReceiver + " --allow-private" }

// startCommand is the call that starts a session, with a key, or with a placeholder for it.
func startCommand(base, key string) string {
	if key == "" {
		key = "$VERIFYD_API_KEY"
	}
	return "curl " + base + `/verify/init \
  -H "Authorization: Bearer ` + key + `" \
  -H "Content-Type: application/json" \
  -d '{
    "platform": "my app",
    "platform_user_id": "sailor_42",
    "callback_url": "https://bot.example.com/verified"
  }'`
}
