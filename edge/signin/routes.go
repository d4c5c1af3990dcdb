package signin

import (
	"net/http"
	"net/url"

	"verifyd/edge"
	"verifyd/sessions"
)

// The paths of this package, below the base URL.
const (
	pathPage   = "/"
	pathSignin = "/signin"
	pathReturn = "/signin/{network}/callback"
	pathAssets = "/assets/"
)

// Routes gives the route table, for edge.Config. HEAD comes with GET, but for the return: a HEAD there would spend the attempt
// and show nobody the end of it.
func (h *Handler) Routes() []edge.Route {
	routes := []edge.Route{
		{Method: http.MethodGet, Path: pathPage, Name: "sign_in_page", Handler: h.guarded(h.show)},
		{Method: http.MethodPost, Path: pathSignin, Name: "sign_in_start", Handler: h.guarded(h.start)},
		{Method: http.MethodGet, Path: pathReturn, Name: "sign_in_return", Handler: h.guarded(h.finish)},
		{Method: http.MethodHead, Path: pathReturn, Name: "sign_in_return", Handler: h.guarded(refuseHead)},
	}
	for _, a := range h.assets.all() {
		routes = append(routes, edge.Route{Method: http.MethodGet, Path: pathAssets + a.name, Name: "sign_in_asset", Handler: a})
	}
	return routes
}

func refuseHead(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Allow", http.MethodGet)
	w.WriteHeader(http.StatusMethodNotAllowed)
}

// pageURL is the clean page of a session.
func (h *Handler) pageURL(t sessions.Token) string {
	return h.prefix + pathPage + "?" + url.Values{"session": {t.Reveal()}}.Encode()
}

// toPage sends the browser to the clean page. 303 makes it a GET whatever came before, so that a reload there repeats nothing
// (RFC 9110 §15.4.4).
func (h *Handler) toPage(w http.ResponseWriter, t sessions.Token) { seeOther(w, h.pageURL(t)) }

// toNotice is toPage with a notice, should the session still be pending. The network's id is for the notice's words.
func (h *Handler) toNotice(w http.ResponseWriter, t sessions.Token, note notice, network string) {
	q := url.Values{"note": {string(note)}}
	if network != "" {
		q.Set("network", network)
	}
	seeOther(w, h.pageURL(t)+"&"+q.Encode())
}

// seeOther has no body: http.Redirect would repeat the address, and with it the session token, in one.
func seeOther(w http.ResponseWriter, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}
