package signin

import (
	"net/http"

	"verifyd/edge/flow"
	"verifyd/edge/page"
	"verifyd/sessions"
	"verifyd/sessions/timeline"
)

const (
	// maxFormBytes bounds the form, which has about 150 bytes.
	maxFormBytes = 8 << 10

	actionContinue = "continue"
	actionDecline  = "decline"
	actionStop     = "stop"
)

// start answers POST /signin, a press on one of the page's buttons.
func (h *Handler) start(w http.ResponseWriter, r *http.Request) {
	if err := h.csrf.Check(r); err != nil {
		h.log.Info().Err(err).Msg("a press on the sign-in page was refused")
		h.draw(w, h.view(h.visitor(r, ""), pageForeign))
		return
	}
	if status := page.ReadForm(w, r, maxFormBytes); status != 0 {
		h.drawMalformed(w, h.visitor(r, ""), status, "")
		return
	}
	vis := h.visitor(r, page.Single(r.PostForm, "lang"))
	token, err := sessions.ParseToken(page.Single(r.PostForm, "session"))
	if err != nil {
		h.draw(w, h.view(vis, pageUnknown))
		return
	}
	if !h.mayStart(w, r, vis, token) {
		return
	}
	r, done := h.wait(w, r, vis, h.pageURL(token, vis.chosen))
	if r == nil {
		return
	}
	defer done()
	s, err := h.read(r, &vis, token, h.sessions.ReadPending)
	switch action := page.Single(r.PostForm, "action"); {
	case err != nil:
		h.drawReadError(w, r, vis, err, h.pageURL(token, vis.chosen))
	case s.State != sessions.Pending, h.closed(s):
		h.toPage(w, vis, token) // which says so
	case action == actionDecline:
		h.decline(w, r, vis, s, token)
	case action == actionContinue:
		h.leave(w, r, vis, s, token)
	case action == actionStop:
		h.stop(w, r, vis, s, token)
	default:
		h.drawMalformed(w, vis, http.StatusBadRequest, h.pageURL(token, vis.chosen))
	}
}

// drawMalformed answers what our page does not send. again is the page to start from, where the session is
// known.
func (p *pages) drawMalformed(w http.ResponseWriter, vis visitor, status int, again string) {
	v := p.view(vis, pageMalformed)
	v.status, v.Again = status, again
	p.draw(w, v)
}

// decline completes the session as the user wishes.
func (h *Handler) decline(w http.ResponseWriter, r *http.Request, vis visitor, s sessions.Status,
	token sessions.Token) {
	if !h.free(w, r, vis, s, token) {
		return
	}
	o := sessions.Outcome{State: sessions.Failed, Reason: sessions.Declined}
	standing, note := h.complete(r.Context(), s.Session, o)
	h.step(s, "").outcome(o, standing, note).Msg("declined on the sign-in page")
	h.toEnd(w, vis, s, token, note, "")
}

// leave sends the browser to the identity network, with a cookie to know it again by.
func (h *Handler) leave(w http.ResponseWriter, r *http.Request, vis visitor, s sessions.Status,
	token sessions.Token) {
	progress, err := h.sessions.AskProgressOf(r.Context(), s.Session)()
	if err != nil {
		h.drawReadError(w, r, vis, err, h.pageURL(token, vis.chosen))
		return
	}
	if progress.Network != "" {
		h.toPage(w, vis, token) // where the code is, or that it is elsewhere
		return
	}
	n, platform := h.next(s.Session, page.Single(r.PostForm, "network"), progress, vis.browser(s.ID))
	if n == nil {
		h.drawMalformed(w, vis, http.StatusBadRequest, h.pageURL(token, vis.chosen))
		return
	}
	id := n.ID()
	if vis.id == "" { // the page that has this button set a cookie
		h.step(s, id).Str("outcome", "no_cookie").Msg("a press came without the page's cookie")
		v := h.view(vis, pageCookies)
		v.Again = h.pageURL(token, vis.chosen)
		h.draw(w, v)
		return
	}
	if !h.acquireLease(w, r, vis, s, token) {
		return
	}
	f := flow.Flow{
		About: token.Reveal(), Network: id, Attempt: h.cookies.NewAttempt(), IssuedAt: h.now(),
		Browser: vis.browser(s.ID), Lang: vis.chosen, Platform: platform,
	}
	to, err := n.AuthURL(r.Context(), f.Attempt)
	if err != nil {
		t := failureOf(err)
		h.step(s, id).failure(t).Msg("a sign-in could not start")
		h.recordFailure(s.Session, id, t)
		h.giveUp(r.Context(), s.ID, f.Browser)
		h.toNotice(w, vis, token, t.note, id)
		return
	}
	h.cookies.MakeRoom(w, r)
	if err := h.cookies.Keep(w, f, s.ExpiresAt.Add(lateReturn)); err != nil {
		h.drawReadError(w, r, vis, err, h.pageURL(token, vis.chosen))
		return
	}
	h.step(s, id).Msg("a sign-in started")
	h.stepped(s.Session, timeline.Event{Name: timeline.EventSignIn, Network: id})
	page.SeeOther(w, to)
}
