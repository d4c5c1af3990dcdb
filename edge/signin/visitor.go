package signin

import (
	"net/http"

	"verifyd/edge/flow"
	"verifyd/sessions"
)

const (
	browserCookie = "verifyd_browser"
	// browserTime is how long the cookie lives from the last look at a page: as long as a session whose page
	// was just opened, and its late return.
	browserTime = sessions.Lifetime + lateReturn
)

// visitor is the browser that a request comes from: which language it reads, and how it is known again.
type visitor struct {
	words  *locale
	chosen string // the language's code where it was chosen on a page; empty: the browser's own wish decides
	id     string // of the browser's cookie; empty: it brought none
}

// visitor looks at a request. chosen is the language that was chosen on a page before, if one was.
func (p *pages) visitor(r *http.Request, chosen string) visitor {
	vis := visitor{words: p.locales.find(chosen), chosen: chosen, id: p.browsers.Of(r)}
	if vis.words == nil {
		vis.words, vis.chosen = p.locales.match(r), ""
	}
	return vis
}

// know returns a browser its cookie, or the same one for a while longer.
func (p *pages) know(w http.ResponseWriter, vis *visitor) { vis.id = p.browsers.Know(w, vis.id) }

// browser names the visitor's browser to the store, for one session; empty where it has no cookie.
func (vis visitor) browser(id sessions.ID) string { return flow.BrowserHash(vis.id, string(id)) }
