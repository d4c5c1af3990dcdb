package signin

import (
	"context"
	"errors"
	"net/http"
	"time"

	"verifyd/edge/flow"
	"verifyd/edge/limit"
	"verifyd/edge/web"
	"verifyd/sessions"
	"verifyd/sessions/store"
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
	// languages is where the list of languages is, which leads back to the page; empty for an answer whose
	// address cannot be opened again.
	languages string
}

// visitor looks at a request. chosen is the language that was chosen on a page before, if one was.
func (p *pages) visitor(r *http.Request, chosen string) visitor {
	vis := visitor{words: p.locales.find(chosen), chosen: chosen, id: p.browsers.Of(r)}
	if vis.words == nil {
		vis.words, vis.chosen = p.locales.match(r), ""
	}
	return vis
}

// prefer takes a session's locale for the visitor's language, if none was chosen on a page.
func (p *pages) prefer(vis *visitor, locale string) {
	words := p.locales.suiting(locale)
	if vis.chosen != "" || words == nil || words == vis.words {
		return
	}
	if vis.words = words; vis.languages != "" {
		vis.languages += "&from=" + words.code // the list of languages reads no session
	}
}

// know returns a browser its cookie, or the same one for a while longer.
func (p *pages) know(w http.ResponseWriter, vis *visitor) { vis.id = p.browsers.Know(w, vis.id) }

// browser names the visitor's browser to the store, for one session; empty if it has no cookie.
func (vis visitor) browser(id sessions.ID) string { return flow.BrowserHash(vis.id, string(id)) }

// releaseWithin bounds how long a browser's giving up is offered to JetStream: it only spares another one a
// wait.
const releaseWithin = 2 * time.Second

// acquireLease makes the visitor's browser the one that signs in. If that cannot be had it answers, and
// returns false.
func (h *Handler) acquireLease(w http.ResponseWriter, r *http.Request, vis visitor, s sessions.Status,
	token sessions.Token) bool {
	lease, err := h.sessions.AcquireLease(r.Context(), s.ID, vis.browser(s.ID))
	switch {
	case errors.Is(err, store.ErrLeaseHeld):
		h.drawElsewhere(w, vis, s, token, lease)
		return false
	case err != nil:
		h.drawReadError(w, r, vis, err, h.pageURL(token, vis.chosen))
		return false
	}
	return true
}

// free reports whether a browser may decline: no other one signs in for the session just now, and where
// somebody has signed in, it was this one. Otherwise, and if nobody can say, it answers.
func (h *Handler) free(w http.ResponseWriter, r *http.Request, vis visitor, s sessions.Status,
	token sessions.Token) bool {
	await := h.sessions.AskProgressOf(r.Context(), s.Session)
	lease, err := h.sessions.LeaseOf(r.Context(), s.ID)
	progress, perr := await()
	switch err := errors.Join(err, perr); {
	case err != nil:
		h.drawReadError(w, r, vis, err, h.pageURL(token, vis.chosen))
		return false
	case progress.Network != "" && progress.Browser != vis.browser(s.ID):
		h.toPage(w, vis, token) // which says where the code is
		return false
	case progress.Network == "" && lease.HeldByOther(vis.browser(s.ID), h.now()):
		h.drawElsewhere(w, vis, s, token, lease)
		return false
	}
	return true
}

// stillOurs reports whether a return comes to the browser that signs in, and not to one that another has
// taken over from since. That one is sent to the page, which says so, and its attempt stays whole.
func (h *Handler) stillOurs(
	waitForLease func() (sessions.SignInLease, error), w http.ResponseWriter, r *http.Request, vis visitor,
	f flow.Flow, s sessions.Status, token sessions.Token,
) bool {
	lease, err := waitForLease()
	switch {
	case err != nil:
		h.drawReadError(w, r, vis, err, "?"+r.URL.RawQuery) // this very return
		return false
	case lease.TakenOverFrom(f.Browser):
		h.step(s, f.Network).Str("outcome", "superseded").
			Msg("a return came after another browser had taken over")
		h.toPage(w, vis, token)
		return false
	}
	return true
}

// giveUp lets another browser begin at once. That it fails costs that one a wait.
func (h *Handler) giveUp(ctx context.Context, id sessions.ID, browser string) {
	if browser == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWithin)
	defer cancel()
	if err := h.sessions.ReleaseLease(ctx, id, browser); err != nil {
		h.log.Warn().Err(err).Str("sid", string(id)).Msg("a browser's giving up is not stored")
	}
}

// stop returns the attempt up as the user wishes.
func (h *Handler) stop(w http.ResponseWriter, r *http.Request, vis visitor, s sessions.Status,
	token sessions.Token) {
	h.giveUp(r.Context(), s.ID, vis.browser(s.ID))
	h.step(s, "").Msg("stopped on the sign-in page")
	h.toNotice(w, vis, token, noteStopped, "")
}

// drawElsewhere says that another browser signs in just now, and how to go on here.
func (p *pages) drawElsewhere(w http.ResponseWriter, vis visitor, s sessions.Status, token sessions.Token,
	lease sessions.SignInLease) {
	v := p.view(vis, pageElsewhere)
	v.values["asker"], v.values["Asker"] = p.requester(vis, s.Account)
	a, _ := p.accounts.Requester(s.Account)
	v.addBranding(a)
	left := lease.Until().Sub(p.now())
	v.count = max(int((left+time.Minute-1)/time.Minute), 1)
	v.Test, v.Caution = s.Test, true
	v.Again, v.AgainText = p.pageURL(token, vis.chosen), "note.again"
	p.draw(w, v)
}

// addLease says on a pending session's page that signing in has begun before.
func (p *pages) addLease(v *view, lease sessions.SignInLease, browser string) {
	switch {
	case lease.Browser == "" || lease.Released:
	case lease.Browser == browser:
		v.Note, v.Stop = "note.begun", true
	default:
		v.Note = "note.takeover"
	}
}

// mayStart reports whether a press may be looked at. If there were too many, it answers, before the store is
// asked.
func (h *Handler) mayStart(w http.ResponseWriter, r *http.Request, vis visitor, token sessions.Token) bool {
	address := web.EventFrom(r.Context()).ClientIP
	wait := h.attempts.Start(limit.TripSignIn, address, string(token.ID()), h.now())
	return wait == 0 || h.drawOften(w, vis, token, wait, h.pageURL(token, vis.chosen))
}

// mayReturn reports whether a return may be looked at. If there were too many, it answers: the attempt stays
// whole and its code is not posted, so that the same return counts once the wait is over.
func (h *Handler) mayReturn(w http.ResponseWriter, r *http.Request, vis visitor, token sessions.Token) bool {
	address := web.EventFrom(r.Context()).ClientIP
	wait := h.attempts.Return(limit.TripSignIn, address, string(token.ID()), h.now())
	return wait == 0 || h.drawOften(w, vis, token, wait, "?"+r.URL.RawQuery)
}

// drawOften says how long to wait before another try, which again leads to. It returns false.
func (p *pages) drawOften(w http.ResponseWriter, vis visitor, token sessions.Token, wait time.Duration,
	again string) bool {
	p.log.Info().Str("sid", string(token.ID())).Str("outcome", "too_often").Dur("wait", wait).
		Msg("an attempt to sign in was put off")
	v := p.view(vis, pageOften)
	v.count = int((wait + time.Second - 1) / time.Second)
	v.retryAfter, v.Again = v.count, again
	p.draw(w, v)
	return false
}
