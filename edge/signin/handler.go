package signin

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"verifyd/edge/flow"
	"verifyd/edge/limit"
	"verifyd/edge/page"
	"verifyd/edge/page/drawn"
	"verifyd/edge/places"
	"verifyd/edge/web"
	"verifyd/sessions"
	"verifyd/sessions/store"
)

// The paths of this package, below the base URL.
const (
	pathPage   = "/"
	pathSignin = "/signin"
	pathReturn = "/signin/{network}/callback"
	pathAssets = "/assets/"
)

const (
	browserCookie = "verifyd_browser"
	// browserTime is how long the cookie lives from the last look at a page: as long as a session whose page
	// was just opened, and its late return.
	browserTime = sessions.Lifetime + lateReturn
	// lateReturn is how much longer than the session a cookie lives, so that who comes back too late learns
	// that the link has expired rather than that cookies are missing. An expired session completes never, so
	// the cookie is worth nothing by then.
	lateReturn = 10 * time.Minute
)

// Handler answers the routes of this package. It is safe for concurrent use and starts nothing.
type Handler struct {
	*pages
	*stepLog
	*verdicts

	sessions *store.Store
	attempts *limit.Attempts
	log      zerolog.Logger
	cookies  flow.Cookies
	codes    flow.Codes
	csrf     *page.CrossOrigin
	judge    *judge
	// judgeWithin bounds the way to a verdict: to spend the attempt and to ask the provider.
	judgeWithin time.Duration
}

// pages is what the pages are made of, and how they are drawn.
type pages struct {
	networks
	material

	accounts Accounts
	store    *places.Waiting
	log      zerolog.Logger
	now      func() time.Time

	origin   string // of the base URL
	prefix   string // its path, without a slash at its end
	https    bool
	browsers flow.Browsers
	drawn    *drawn.Pages[drawing]
}

// visit is one request to the pages: which language it is answered in, how its browser is known again, and
// which session it is about.
type visit struct {
	r      *http.Request // under the context of its calls to the store, once it may ask (wait)
	words  *locale
	chosen string // the language's code where it was chosen on a page; empty: the browser's own wish decides
	id     string // of the browser's cookie; empty: it brought none
	// languages is where the list of languages is, which leads back to the page; empty for an answer whose
	// address cannot be opened again.
	languages string

	token  sessions.Token  // of the session; empty: it is about none
	status sessions.Status // the session, once it is read
	again  string          // where the user may try again, which repeats nothing
}

// reply is the answer to a visit: a page, or, if there is an address, a redirect to it. Functions that may
// have one, such as checks, return nil if the visit goes on.
type reply struct {
	page view
	to   string
}

// answers returns the handler that writes what decide returns. Nothing else writes an answer: decide gets the
// ResponseWriter for the request's body and for cookies.
func (p *pages) answers(decide func(http.ResponseWriter, *http.Request) *reply) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if re := decide(w, r); re.to != "" {
			page.SeeOther(w, re.to)
		} else {
			p.draw(w, re.page)
		}
	}
}

// visit looks at a request. chosen is the language that was chosen on a page before, if one was.
func (p *pages) visit(r *http.Request, chosen string) *visit {
	vis := &visit{r: r, words: p.locales.find(chosen), chosen: chosen, id: p.browsers.Of(r)}
	if vis.words == nil {
		vis.words, vis.chosen = p.locales.match(r), ""
	}
	return vis
}

// prefer takes a session's language, if it has one, for a visit whose language was not chosen on a page.
func (vis *visit) prefer(words *locale) {
	if vis.chosen != "" || words == nil || words == vis.words {
		return
	}
	if vis.words = words; vis.languages != "" {
		vis.languages += "&from=" + words.code // the list of languages reads no session
	}
}

// browser names the visit's browser to the store, for its session; empty if it has no cookie.
func (vis *visit) browser() string { return flow.BrowserHash(vis.id, string(vis.status.ID)) }

// pageURL is the clean page of a visit's session, in the language that was chosen there, if one was.
func (p *pages) pageURL(vis *visit) string {
	to := p.prefix + pathPage + "?" + url.Values{"session": {vis.token.Reveal()}}.Encode()
	if vis.chosen != "" {
		to += "&" + url.Values{"lang": {vis.chosen}}.Encode()
	}
	return to
}

// toPage sends the browser to the clean page.
func (p *pages) toPage(vis *visit) *reply { return &reply{to: p.pageURL(vis)} }

// toNotice is toPage with a notice, should the session still be pending. The network's id is for the notice's
// words.
func (p *pages) toNotice(vis *visit, note notice, network string) *reply {
	q := url.Values{"note": {string(note)}}
	if network != "" {
		q.Set("network", network)
	}
	return &reply{to: p.pageURL(vis) + "&" + q.Encode()}
}

// read reads the visit's session in that way, notes on the request's log line whose it is, and speaks its
// language.
func (h *Handler) read(vis *visit,
	way func(context.Context, sessions.Token) (sessions.Status, error)) *reply {
	ctx := vis.r.Context()
	line := web.EventFrom(ctx)
	line.Session = vis.token.ID()
	s, err := way(ctx, vis.token)
	line.Account = s.Account
	line.Follow(ctx, s.Trace)
	vis.prefer(h.locales.suiting(s.Locale))
	if err != nil {
		return h.replyReadError(vis, err)
	}
	vis.status = s
	return nil
}

// wait takes a place for the visit among the requests that ask the store, and puts it under the context for
// that; done lets go of both, and may be called again. A press and a return must pass, a look at a page waits
// behind them. If too many wait, there is a reply instead.
func (p *pages) wait(vis *visit, must bool) (done func(), full *reply) {
	before := vis.r
	ctx, leave, err := p.store.Begin(before.Context(), places.Request{
		Of: limit.SiteOf(web.EventFrom(before.Context()).ClientIP), Must: must,
	})
	if err != nil {
		return nil, p.replyReadError(vis, err)
	}
	vis.r = before.WithContext(ctx)
	return sync.OnceFunc(func() { leave(); vis.r = before }), nil
}

// replyReadError is for a session that could not be read, or an attempt that could not be spent.
func (p *pages) replyReadError(vis *visit, err error) *reply {
	if errors.Is(err, sessions.ErrNotFound) {
		return &reply{page: p.view(vis, pageUnknown)}
	}
	web.EventFrom(vis.r.Context()).Err = err
	v := p.view(vis, pageUnavailable)
	v.Again = vis.again
	return &reply{page: v}
}

// checkStarts puts a press off if there were too many, before the store is asked.
func (h *Handler) checkStarts(vis *visit) *reply {
	address := web.EventFrom(vis.r.Context()).ClientIP
	return h.putOff(vis, h.attempts.Start(limit.TripSignIn, address, string(vis.token.ID()), h.now()))
}

// checkReturns puts a return off if there were too many: the attempt stays whole and its code is not posted,
// so that the same return counts once the wait is over.
func (h *Handler) checkReturns(vis *visit) *reply {
	address := web.EventFrom(vis.r.Context()).ClientIP
	return h.putOff(vis, h.attempts.Return(limit.TripSignIn, address, string(vis.token.ID()), h.now()))
}

// putOff says how long to wait before another try, if there is a wait.
func (p *pages) putOff(vis *visit, wait time.Duration) *reply {
	if wait == 0 {
		return nil
	}
	p.log.Info().Str("sid", string(vis.token.ID())).Str("outcome", "too_often").Dur("wait", wait).
		Msg("an attempt to sign in was put off")
	v := p.view(vis, pageOften)
	v.count = int((wait + time.Second - 1) / time.Second)
	v.retryAfter, v.Again = v.count, vis.again
	return &reply{page: v}
}
