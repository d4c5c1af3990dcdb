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
)

// start answers POST /signin, a press on one of the page's buttons.
func (h *Handler) start(w http.ResponseWriter, r *http.Request) {
	if err := h.csrf.Check(r); err != nil {
		h.log.Info().Err(err).Msg("a press on the sign-in page was refused")
		h.draw(w, h.view(pageForeign))
		return
	}
	if status := page.ReadForm(w, r, formMostBytes); status != 0 {
		h.drawMalformed(w, status)
		return
	}
	token, err := sessions.ParseToken(page.Single(r.PostForm, "session"))
	if err != nil {
		h.draw(w, h.view(pageUnknown))
		return
	}
	s, err := h.read(r.Context(), r, token.ID())
	switch action := page.Single(r.PostForm, "action"); {
	case err != nil:
		h.drawReadError(w, r, err, h.pageURL(token))
	case s.State != sessions.Pending:
		h.toPage(w, token)
	case action == actionDecline:
		h.decline(w, r, s, token)
	case action == actionContinue:
		h.leave(w, r, s, token)
	default:
		h.drawMalformed(w, http.StatusBadRequest)
	}
}

func (h *Handler) drawMalformed(w http.ResponseWriter, status int) {
	v := h.view(pageMalformed)
	v.status = status
	h.draw(w, v)
}

// decline completes the session as the user wishes.
func (h *Handler) decline(w http.ResponseWriter, r *http.Request, s sessions.View, token sessions.Token) {
	o := sessions.Outcome{State: sessions.Failed, Reason: sessions.Declined}
	standing, note := h.complete(r.Context(), s.ID, o)
	h.step(s, "").outcome(o, standing, note).Msg("declined on the sign-in page")
	h.toEnd(w, token, note, "")
}

// leave sends the browser to the identity network, with a cookie to know it again by.
func (h *Handler) leave(w http.ResponseWriter, r *http.Request, s sessions.View, token sessions.Token) {
	id := page.Single(r.PostForm, "network")
	n := h.network(id, s.Test)
	if n == nil {
		h.drawMalformed(w, http.StatusBadRequest)
		return
	}
	f := flow.Flow{About: token.Reveal(), Network: id, Attempt: network.NewAttempt(), IssuedAt: h.now()}
	to, err := n.AuthURL(r.Context(), f.Attempt)
	if err != nil {
		t := troubleOf(err)
		h.step(s, id).trouble(t).Msg("a sign-in could not start")
		h.sessions.Emit(sessions.Event{Name: sessions.EventTrouble, Session: s.ID, Network: id, Detail: t.Error()})
		h.toNotice(w, token, t.note, id)
		return
	}
	h.cookies.MakeRoom(w, r)
	if err := h.cookies.Keep(w, f, s.ExpiresAt.Add(lateReturn)); err != nil {
		h.drawReadError(w, r, err, h.pageURL(token))
		return
	}
	h.step(s, id).Msg("a sign-in started")
	h.sessions.Emit(sessions.Event{Name: sessions.EventSignIn, Session: s.ID, Network: id})
	page.SeeOther(w, to)
}
