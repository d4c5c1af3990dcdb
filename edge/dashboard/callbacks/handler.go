// Package callbacks serves an account's pages about its callbacks:
//
//	callbacks                    outcomes that were not delivered; sent again together, or marked as seen
//	callbacks/runs/{run}         the state of callbacks that were sent again together
//	callbacks/test               a test callback, and the last ones
//	sessions/{session}/resend    one callback sent again
//
// Every callback that is sent again from here counts towards one rate of the account, whether in bulk or one
// by one.
package callbacks

import (
	"embed"
	"errors"
	"net/http"

	"verifyd/edge/account"
	"verifyd/edge/account/access"
	"verifyd/edge/account/signing"
	"verifyd/edge/dashboard/callbacks/kept"
	"verifyd/edge/dashboard/paths"
	"verifyd/edge/dashboard/site"
	"verifyd/edge/limit"
	"verifyd/edge/web"
	"verifyd/sessions/store"
)

//go:embed web
var webFiles embed.FS

// Part is what site.New needs of this package.
func Part() site.Part {
	return site.Part{
		Files: webFiles, Pages: []string{"callbacks", "callbackrun", "callbacktest", "resend"},
		Flashes: flashes,
	}
}

// Config is what a Handler needs in addition to the site. All of it is required but Sender, without which no
// test callback is sent.
type Config struct {
	Sessions *store.Store
	Kept     *kept.Store
	Sender   Sender
	Signing  *signing.Keys // derives the key pairs of accounts
}

// Handler answers the routes of this package. It is safe for concurrent use and starts nothing.
type Handler struct {
	*site.Site
	Config

	again *limit.Rates // of callbacks that are sent again, by account
	tests *limit.Rates // of test callbacks, by account
}

// New returns the handler.
func New(s *site.Site, c Config) (*Handler, error) {
	if c.Sessions == nil || c.Kept == nil || c.Signing == nil {
		return nil, errors.New("dashboard: Sessions, Kept and Signing are required")
	}
	again, err := limit.NewRates(againRate)
	if err != nil {
		return nil, err
	}
	tests, err := limit.NewRates(testRate)
	if err != nil {
		return nil, err
	}
	return &Handler{s, c, again, tests}, nil
}

// The paths that no other package links to.
const (
	pathAgain = "/dashboard/callbacks/send-again"
	pathSeen  = "/dashboard/callbacks/seen"
	pathRun   = "/dashboard/callbacks/runs/{run}"

	pathSession = "/dashboard/sessions/{session}"
	pathResend  = pathSession + "/resend"
)

// Routes returns the route table.
func (h *Handler) Routes() []web.Route {
	return []web.Route{
		paths.Get(paths.Callbacks, h.Read(access.ActionView, h.showUndelivered)),
		paths.Post(pathAgain, h.Mutate(access.ActionSend, h.sendAgain)),
		paths.Post(pathSeen, h.Mutate(access.ActionSend, h.markSeen)),
		paths.Get(pathRun, h.Read(access.ActionView, h.showRun)),
		paths.Get(paths.CallbackTest, h.Read(access.ActionView, h.showTest)),
		paths.Post(paths.CallbackTest, h.Mutate(access.ActionSend, h.sendTest)),
		paths.Get(pathResend, h.Read(access.ActionSend, h.showResend)),
		paths.Post(pathResend, h.Mutate(access.ActionSend, h.resend)),
	}
}

// The messages of this package's pages.
const (
	flashResent        site.FlashCode = "resent"
	flashNothingToSend site.FlashCode = "nothing-to-send"
	flashResentOften   site.FlashCode = "resent-often"
	flashNoneTicked    site.FlashCode = "none-ticked"
	flashNoneOpen      site.FlashCode = "none-open"
	flashSeen          site.FlashCode = "seen"
	flashTestOnce      site.FlashCode = "test-once"
)

var flashes = map[site.FlashCode]site.Flash{
	flashResent: {Tone: "good", Text: "The callback is on its way again, with the same webhook-id."},
	flashResentOften: {Tone: "caution",
		Text: "This callback was sent again 100 times, which is as often as is possible."},
	flashNothingToSend: {Tone: "caution", Text: "This session has no outcome to send."},
	flashNoneTicked:    {Tone: "caution", Text: "Nothing was selected, so nothing was done."},
	flashNoneOpen: {
		Tone: "caution", Text: "None of them is still undelivered, so nothing was done.",
	},
	flashSeen: {
		Tone: "good", Text: "Marked as seen. They are still here: choose “seen” or “all” above the list.",
	},
	flashTestOnce: {Tone: "caution", Text: "That exchange was shown once and cannot be shown again."},
}

// problemTooMany describes what happened, then what to do.
var problemTooMany = site.Problem{
	Status: http.StatusTooManyRequests, Heading: "Slow down a little",
	Lead: "Many callbacks of this account were sent again within seconds, so nothing was sent now.",
	Next: "Wait a few seconds, go back, and press the button again.",
}

// rateOf returns the key of an account in the rates.
func rateOf(v site.Visit) account.Key { return account.Key{ID: v.Account.ID} }
