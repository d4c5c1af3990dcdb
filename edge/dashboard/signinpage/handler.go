// Package signinpage serves the page of the dashboard on which an account's owners set what its users see,
// with all states of the sign-in page next to it:
//
//	sign-in-page                     looks, the link back, what sessions ask for
//	sign-in-page/preview             one state of the sign-in page, shown in a frame
//
// A choice can be seen before it is saved: the page and the preview take the colours from their address,
// which changes nothing.
package signinpage

import (
	"embed"
	"errors"
	"net/http"
	"sync"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/branding/logo"
	"verifyd/edge/dashboard/paths"
	"verifyd/edge/dashboard/site"
	"verifyd/edge/web"
)

//go:embed web
var webFiles embed.FS

// Part is what site.New needs of this package.
func Part() site.Part {
	return site.Part{Files: webFiles, Pages: []string{"branding"}, Flashes: map[site.FlashCode]site.Flash{
		flashSet: {Tone: "good", Text: "Saved. Your users see it from now on."},
	}}
}

const flashSet site.FlashCode = "face-set"

// The paths of this package.
const (
	pathPage          = "/dashboard/sign-in-page"
	pathPreview       = "/dashboard/sign-in-page/preview"
	pathLook          = "/dashboard/sign-in-page/look"
	pathReturnURL     = "/dashboard/sign-in-page/return-url"
	pathReturnOrigins = "/dashboard/sign-in-page/return-origins"
	pathBinding       = "/dashboard/sign-in-page/binding"
)

// maxUpload is above the maximum of a logo, so that the error for a somewhat too large file is shown at its
// field.
const maxUpload = 4 * logo.MaxFileBytes

// Config is what the pages need in addition to the site.
type Config struct {
	// Draw draws a state of the sign-in page as an account's users see it; nil if there is no preview
	Draw   func(w http.ResponseWriter, r *http.Request, a account.Account, state string)
	States []string // that it knows, the question first
}

// Handler answers the routes of this package. It is safe for concurrent use and starts nothing.
type Handler struct {
	*site.Site

	config Config
	// logos are read one at a time: each may take some tens of megabytes for a moment.
	logos sync.Mutex
}

// New returns the handler.
func New(s *site.Site, c Config) (*Handler, error) {
	if c.Draw != nil && len(c.States) == 0 {
		return nil, errors.New("dashboard: a preview needs States")
	}
	return &Handler{Site: s, config: c}, nil
}

// Routes returns the route table.
func (h *Handler) Routes() []web.Route {
	look := paths.Post(pathLook, h.Upload(access.ActionBranding, maxUpload, h.setLook))
	look.MaxBody = maxUpload
	return []web.Route{
		paths.Get(pathPage, h.Read(access.ActionView, h.show)),
		paths.Get(pathPreview, h.Read(access.ActionView, h.preview)),
		look,
		paths.Post(pathReturnURL, h.Mutate(access.ActionBranding, h.setReturnURL)),
		paths.Post(pathReturnOrigins, h.Mutate(access.ActionBranding, h.setReturnOrigins)),
		paths.Post(pathBinding, h.Mutate(access.ActionBranding, h.setBinding)),
	}
}
