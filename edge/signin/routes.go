package signin

import (
	"net/http"
	"net/url"

	"verifyd/edge/account/branding"
	looks "verifyd/edge/branding"
	"verifyd/edge/page"
	"verifyd/edge/web"
	"verifyd/sessions"
)

// The paths of this package, below the base URL.
const (
	pathPage   = "/"
	pathSignin = "/signin"
	pathReturn = "/signin/{network}/callback"
	pathAssets = "/assets/"
)

// Routes returns the route table, for api.Config. HEAD comes with GET, but for the return: a HEAD there
// would spend the attempt and show nobody the end of it.
func (h *Handler) Routes() []web.Route {
	routes := []web.Route{
		{Method: http.MethodGet, Path: pathPage, Name: "sign_in_page", Handler: page.Guard(h.https, h.show)},
		{Method: http.MethodPost, Path: pathSignin, Name: "sign_in_start",
			Handler: page.Guard(h.https, h.start)},
		{Method: http.MethodGet, Path: pathReturn, Name: "sign_in_return",
			Handler: page.Guard(h.https, h.finish)},
		{Method: http.MethodHead, Path: pathReturn, Name: "sign_in_return",
			Handler: page.Guard(h.https, refuseHead)},
	}
	for _, a := range h.assets.all() {
		routes = append(routes, web.Route{
			Method: http.MethodGet, Path: pathAssets + a.Name, Name: "sign_in_asset", Handler: a,
		})
	}
	return append(routes, looks.Routes(h.https, func(account string) (branding.Branding, bool) {
		a, ok := h.accounts.Requester(account)
		return a.Branding, ok
	})...)
}

func refuseHead(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Allow", http.MethodGet)
	w.WriteHeader(http.StatusMethodNotAllowed)
}

// pageURL is the clean page of a session, in the language that was chosen there, if one was.
func (p *pages) pageURL(t sessions.Token, lang string) string {
	to := p.prefix + pathPage + "?" + url.Values{"session": {t.Reveal()}}.Encode()
	if lang != "" {
		to += "&" + url.Values{"lang": {lang}}.Encode()
	}
	return to
}

// toPage sends the browser to the clean page.
func (h *Handler) toPage(w http.ResponseWriter, vis visitor, t sessions.Token) {
	page.SeeOther(w, h.pageURL(t, vis.chosen))
}

// toNotice is toPage with a notice, should the session still be pending. The network's id is for the notice's
// words.
func (h *Handler) toNotice(w http.ResponseWriter, vis visitor, t sessions.Token, note notice,
	network string) {
	q := url.Values{"note": {string(note)}}
	if network != "" {
		q.Set("network", network)
	}
	page.SeeOther(w, h.pageURL(t, vis.chosen)+"&"+q.Encode())
}
