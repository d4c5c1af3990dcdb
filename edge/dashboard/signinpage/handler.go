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
	"time"

	"verifyd/edge/account"
	"verifyd/edge/account/branding/logo"
	"verifyd/edge/dashboard/site"
	"verifyd/edge/limit"
	"verifyd/edge/places"
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
// field; the form's other fields are small.
const maxUpload = 2*logo.MaxFileBytes + 64<<10

// logoRate is how many logos an account may upload: as many as somebody tries in a row, and then one a
// minute. A file of a few bytes can take as long to read as a whole photograph.
var logoRate = account.Rate{Count: 1, Per: time.Minute, Burst: 10}

// problemTooMany describes what happened, then what to do.
var problemTooMany = site.Problem{
	Status: http.StatusTooManyRequests, Heading: "Slow down a little",
	Lead: "Many logos of this account were uploaded within minutes, so nothing was changed now.",
	Next: "Wait a minute, go back, and press the button again.",
}

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
	rate   *limit.Rates // of logos, by account
	logos  *places.Places
}

// New returns the handler.
func New(s *site.Site, c Config) (*Handler, error) {
	if c.Draw != nil && len(c.States) == 0 {
		return nil, errors.New("dashboard: a preview needs States")
	}
	rate, err := limit.NewRates(logoRate)
	if err != nil {
		return nil, err
	}
	return &Handler{s, c, rate, places.New(places.Pools.Logos)}, nil
}
