// Package operator serves the operator's pages of the dashboard: the service, all accounts and each of them,
// receiver hosts, what was not delivered, and what happened to a session. They are for people who were made
// operators at the command line, whatever accounts they are members of. They show no secret, no callback URL
// beyond its host, and no user.
package operator

import (
	"context"
	"embed"
	"errors"
	"net/http"

	"verifyd/edge/account"
	"verifyd/edge/dashboard/site"
	"verifyd/edge/page"
	"verifyd/natsconf/fleet"
	"verifyd/sessions/pauses"
	"verifyd/sessions/store"
)

//go:embed web
var webFiles embed.FS

// Part is what site.New needs of this package.
func Part() site.Part {
	return site.Part{
		Files: webFiles, Pages: []string{"operator", "accounts", "hosts", "undelivered", "operatoraudit",
			"account", "movemember", "opsession"},
		Flashes: flashes,
	}
}

// Directory holds all accounts and their keys; a *keymirror.Mirror. It may be a moment behind the store.
type Directory interface {
	Accounts(text, after string, limit int) (found []account.Account, more bool)
	Name(account string) (string, bool)
	Keys(account string) []account.Key
}

// Fleet asks all processes of the service what they know. Its error is natsconf.ErrUnavailable.
type Fleet func(ctx context.Context) ([]fleet.Process, error)

// Config is what a Handler needs in addition to the site. All of it is required.
type Config struct {
	Directory Directory
	Sessions  *store.Store
	Pauses    *pauses.Store // of receiver hosts
	Fleet     Fleet
	Quota     int64 // for accounts without one of their own; at least 1
}

// Handler answers the routes of this package. It is safe for concurrent use and starts nothing.
type Handler struct {
	*site.Site
	Config
}

// New returns the handler.
func New(s *site.Site, c Config) (*Handler, error) {
	if c.Directory == nil || c.Sessions == nil || c.Pauses == nil || c.Fleet == nil {
		return nil, errors.New("dashboard: Directory, Sessions, Pauses and Fleet are required")
	}
	return &Handler{s, c}, nil
}

// read admits operators to one of their pages.
func (h *Handler) read(next site.Page) http.Handler {
	return page.Guard(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := h.Within(r)
		defer cancel()
		l, err := h.Authenticate(ctx, r)
		if err != nil {
			h.Deny(w, r, site.Visit{}, err)
			return
		}
		v := site.Visit{Login: l}
		if v.Operator, err = h.IsOperator(ctx, l); err != nil {
			h.Fail(w, r, nil, err)
			return
		}
		if !v.Operator {
			h.Log.Info().Str("network", l.Network).Str("link", l.LinkID).
				Msg("somebody who is no operator asked for an operator's page")
			h.DrawProblem(w, nil, problemNoOperator)
			return
		}
		cancel() // next waits by itself, and may take long
		next(w, r, v)
	})
}

// mutate is read for changes: a form of this site.
func (h *Handler) mutate(next site.Page) http.Handler { return h.Posted(h.read(next)) }

// drawPage draws a page of the operator's.
func (h *Handler) drawPage(w http.ResponseWriter, r *http.Request, v site.Visit, shown site.View) {
	shown.Visit, shown.Operating, shown.Flash = &v, true, h.TakeFlash(w, r)
	h.Draw(w, shown)
}
