package signin

import (
	"net/http"

	"verifyd/edge/flow"
	"verifyd/edge/network"
	"verifyd/edge/page"
	"verifyd/sessions"
)

const (
	// formMostBytes bounds the form, which has about 150 bytes.
	formMostBytes = 8 << 10

	actionContinue = "continue"
	actionDecline  = "decline"
	actionStop     = "stop"
)

// start answers POST /signin, a press on one of the page's buttons.
func (h *Handler) start(w http.ResponseWriter, r *http.Request) {
	if err := h.csrf.Check(r); err != nil {
		h.log.Info().Err(err).Msg("a press on the sign-in page was refused")
		h.draw(w, h.view(h.guest(r, ""), pageForeign))
		return
	}
	if status := page.ReadForm(w, r, formMostBytes); status != 0 {
		h.drawMalformed(w, h.guest(r, ""), status, "")
		return
	}
	g := h.guest(r, page.Single(r.PostForm, "lang"))
	token, err := sessions.ParseToken(page.Single(r.PostForm, "session"))
	if err != nil {
		h.draw(w, h.view(g, pageUnknown))
		return
	}
	s, err := h.read(r.Context(), r, token.ID())
	switch action := page.Single(r.PostForm, "action"); {
	case err != nil:
		h.drawReadError(w, r, g, err, h.pageURL(token, g.chosen))
	case s.State != sessions.Pending:
		h.toPage(w, g, token)
	case action == actionDecline:
		h.decline(w, r, g, s, token)
	case action == actionContinue:
		h.leave(w, r, g, s, token)
	case action == actionStop:
		h.stop(w, r, g, s, token)
	default:
		h.drawMalformed(w, g, http.StatusBadRequest, h.pageURL(token, g.chosen))
	}
}

// drawMalformed answers what our page does not send. again is the page to start from, where the session is known.
func (h *Handler) drawMalformed(w http.ResponseWriter, g guest, status int, again string) {
	v := h.view(g, pageMalformed)
	v.status, v.Again = status, again
	h.draw(w, v)
}

// decline completes the session as the user wishes.
func (h *Handler) decline(w http.ResponseWriter, r *http.Request, g guest, s sessions.View, token sessions.Token) {
	if !h.free(w, r, g, s, token) {
		return
	}
	o := sessions.Outcome{State: sessions.Failed, Reason: sessions.Declined}
	standing, note := h.complete(r.Context(), s.ID, o)
	h.step(s, "").outcome(o, standing, note).Msg("declined on the sign-in page")
	h.toEnd(w, g, s, token, note, "")
}

// leave sends the browser to the identity network, with a cookie to know it again by.
func (h *Handler) leave(w http.ResponseWriter, r *http.Request, g guest, s sessions.View, token sessions.Token) {
	id := page.Single(r.PostForm, "network")
	n := h.network(id, s.Test)
	if n == nil {
		h.drawMalformed(w, g, http.StatusBadRequest, h.pageURL(token, g.chosen))
		return
	}
	if g.id == "" { // the page that has this button set a cookie
		h.step(s, id).Str("outcome", "no_cookie").Msg("a press came without the page's cookie")
		v := h.view(g, pageCookies)
		v.Again = h.pageURL(token, g.chosen)
		h.draw(w, v)
		return
	}
	if !h.takeSeat(w, r, g, s, token) {
		return
	}
	f := flow.Flow{
		About: token.Reveal(), Network: id, Attempt: network.NewAttempt(), IssuedAt: h.now(), Browser: g.browser(s.ID), Lang: g.chosen,
	}
	to, err := n.AuthURL(r.Context(), f.Attempt)
	if err != nil {
		t := troubleOf(err)
		h.step(s, id).trouble(t).Msg("a sign-in could not start")
		h.troubled(s.Session, id, t)
		h.giveUp(r.Context(), s.ID, f.Browser)
		h.toNotice(w, g, token, t.note, id)
		return
	}
	h.cookies.MakeRoom(w, r)
	if err := h.cookies.Keep(w, f, s.ExpiresAt.Add(lateReturn)); err != nil {
		h.drawReadError(w, r, g, err, h.pageURL(token, g.chosen))
		return
	}
	h.step(s, id).Msg("a sign-in started")
	h.stepped(s.Session, sessions.Event{Name: sessions.EventSignIn, Network: id})
	page.SeeOther(w, to)
}
